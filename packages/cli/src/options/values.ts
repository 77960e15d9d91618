// Parsers of option values that several verbs have.

import { resolve } from "node:path";
import { InvalidArgumentError } from "commander";

import type { Share } from "forkd";

const UNIT_SECS: Record<string, number> = { "": 1, s: 1, m: 60, h: 3600, d: 86_400 };

export function positiveInteger(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value) || value < 1)
    throw new InvalidArgumentError("It must be a whole number of at least 1.");
  return value;
}

/** Limit of sandboxes per request; the API has the same limit, which a test compares */
export const MAX_FORKS = 1000;

export function forkCount(text: string): number {
  const value = positiveInteger(text);
  if (value > MAX_FORKS) throw new InvalidArgumentError(`At most ${MAX_FORKS} sandboxes are forked at once. Fork again for more.`);
  return value;
}

export function portNumber(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > 65_535) throw new InvalidArgumentError("A port is a number from 1 to 65535.");
  return value;
}

export function compressionLevel(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > 19) throw new InvalidArgumentError("A level is a number from 1 to 19.");
  return value;
}

export function wholeNumber(text: string): number {
  return text === "0" ? 0 : positiveInteger(text);
}

/** Seconds, fractions allowed */
export function positiveNumber(text: string): number {
  const value = Number(text);
  if (!/^\d+(\.\d+)?$/.test(text) || value <= 0) throw new InvalidArgumentError("It must be a number above 0.");
  return value;
}

/** 90, 90s, 10m, 2h, 1d; whole seconds */
export function duration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)([smhd]?)$/.exec(text);
  const secs = Number(match?.[1]) * (UNIT_SECS[match?.[2] ?? ""] ?? Number.NaN);
  if (!Number.isSafeInteger(secs) || secs < 1) throw new InvalidArgumentError("It must be a time such as 90, 90s, 10m, 2h or 1d.");
  return secs;
}

/** A duration, or never; commander turns null into "" */
export function durationOrNever(text: string): number | "never" {
  return text === "never" ? text : duration(text);
}

/** In the form of the API */
export function orNull(value: number | "never" | undefined): number | null | undefined {
  return value === "never" ? null : value;
}

/** KEY=VALUE, repeated */
export function addPair(text: string, all: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("It must be KEY=VALUE.");
  return { ...all, [text.slice(0, at)]: text.slice(at + 1) };
}

/** FOLDER[:PLACE], repeated. The folder is a local one and may be relative. Without a place, the guest path is the same */
export function addShare(text: string, all: Share[] = []): Share[] {
  const at = text.lastIndexOf(":");
  const source = resolve(at < 0 ? text : text.slice(0, at));
  const target = at < 0 ? source : text.slice(at + 1);
  if (text === "" || at === 0 || !target.startsWith("/"))
    throw new InvalidArgumentError("It must be FOLDER or FOLDER:/PLACE/IN/THE/GUEST.");
  return [...all, { source, target }];
}

export function addText(text: string, all: string[] = []): string[] {
  return [...all, text];
}

/** comma-separated, and repeatable */
export function addWords(list: string, all: string[] = []): string[] {
  const words = list.split(/[,\s]+/).filter(Boolean);
  return [...all, ...words];
}

/** Splits a command line without a shell: blanks separate words, quotes and backslashes join them. Also accepts a JSON array */
export function splitWords(text: string): string[] {
  if (text.trimStart().startsWith("[")) return jsonWords(text);
  const words: string[] = [];
  let word: string | undefined;
  for (const [piece, single, double, escaped, blank] of text.matchAll(/'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|(\s+)|[^\s'"\\]+|./gsu)) {
    if (blank !== undefined) {
      if (word !== undefined) words.push(word);
      word = undefined;
      continue;
    }
    if (piece === "'" || piece === '"' || piece === "\\") throw new InvalidArgumentError("A quote or a backslash has no end.");
    word = (word ?? "") + (single ?? double?.replace(/\\(["\\])/g, "$1") ?? escaped ?? piece);
  }
  if (word !== undefined) words.push(word);
  if (words.length === 0) throw new InvalidArgumentError("It must name a program.");
  return words;
}

export function addCommandWords(text: string, all: string[][] = []): string[][] {
  return [...all, splitWords(text)];
}

function jsonWords(text: string): string[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (!Array.isArray(value) || value.length === 0 || !value.every((word) => typeof word === "string"))
    throw new InvalidArgumentError("It must be a JSON array of text, or words.");
  return value;
}

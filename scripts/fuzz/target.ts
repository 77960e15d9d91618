// Type of a fuzz target: a parser, its checks and its corpus.

import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ForkdError, type ErrorCode } from "@forkd/runtime/errors";
import { Random } from "../../tests/helpers/random.ts";

export const ROOT = resolve(import.meta.dirname, "..", "..");
const CORPUS = join(import.meta.dirname, "corpus");

/** Approximate number of pieces of an input: each costs some microseconds */
const MOST_PIECES = 1000;

export type Target = {
  /** path prefixes of the source files whose coverage guides the search */
  sources: readonly string[];
  /** strings that a mutation may insert */
  tokens: readonly (string | Buffer)[];
  /** maximum size of an input */
  maxBytes: number;
  /** mutations that keep the format valid; without them most inputs fail at the first check, such as a checksum */
  mutate?: (input: Buffer, random: Random) => Buffer;
  /** acquires resources of `run`: servers, folders */
  open?: () => Promise<AsyncDisposable>;
  /**
   * Parses the input and checks the result. Returns a short outcome; an input with a new outcome is kept. An exception
   * is a finding.
   */
  run: (input: Buffer) => string | Promise<string>;
};

/** Inputs of a target with their names, sorted */
export async function corpusOf(name: string): Promise<{ name: string; bytes: Buffer }[]> {
  const folder = corpusFolder(name);
  const names = (await readdir(folder)).toSorted();
  return Promise.all(names.map(async (file) => ({ name: file, bytes: await readFile(join(folder, file)) })));
}

export function corpusFolder(name: string): string {
  return join(CORPUS, name);
}

/** Message of a declared error without its values; throws any other error */
export function declared(error: unknown, codes: readonly ErrorCode[]): string {
  if (!(error instanceof ForkdError) || !codes.includes(error.code)) throw error;
  if (error.message.length > 10_000) throw new Error(`an error message of ${error.message.length} characters`);
  const words = error.message.replaceAll(/"(?:[^"\\]|\\.)*"|sha256:\w+|\d+/g, "#");
  return `${error.code} ${words.slice(0, 80)}`;
}

/** Splits the input into pieces, deterministically */
export function piecesOf(input: Buffer): Buffer[] {
  const random = new Random(createHash("sha1").update(input).digest().readUInt32LE(0));
  const longest = Math.max(random.pick([1, 3, 17, 300, 5000]) ?? 1, Math.floor(input.length / MOST_PIECES));
  const pieces: Buffer[] = [];
  for (let at = 0; at < input.length;) {
    const size = 1 + random.below(longest);
    pieces.push(input.subarray(at, at + size));
    at += size;
  }
  return pieces;
}

export async function* streamOf(pieces: Iterable<Buffer>): AsyncGenerator<Buffer> {
  yield* pieces;
}

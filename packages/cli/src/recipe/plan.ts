// What a build does, one layer after the other. The key of a layer says everything that it follows from.

import { createHash } from "node:crypto";

import type { CopiedFile, Recipe, Step } from "./schema.ts";

/** Another way to do the same steps makes other snapshots */
const FORMAT = 1;
const KEY_LENGTH = 32;
const MAX_TITLE = 60;

/** What a recipe begins with: an image that is booted, or a snapshot that is there */
export type Base = { kind: "image"; /** hash of a file that is imported */ content?: string } | { kind: "snapshot"; id: string };

export type Layer = { key: string; title: string } & ({ kind: "boot" } | { kind: "copy"; file: CopiedFile } | { kind: "step"; step: Step });

export type Plan = { layers: Layer[]; /** of the finished snapshot */ key: string };

/** `contents`: the hashes of the copied files, in their order */
export function planOf(recipe: Recipe, base: Base, contents: readonly string[]): Plan {
  const { image, machine, kernels, env, network, user, workdir } = recipe;
  const beginning = base.kind === "image" ? { image, content: base.content, machine, kernels } : { snapshot: base.id };
  let key = keyOf("", { format: FORMAT, ...beginning, env, network });
  const layers: Layer[] = base.kind === "image" ? [{ kind: "boot", key, title: "Booting the image" }] : [];
  for (const [index, file] of recipe.files.entries()) {
    key = keyOf(key, { file, content: contents[index] });
    layers.push({ kind: "copy", key, title: `Copying ${file.from}`, file });
  }
  for (const given of recipe.steps) {
    const step =
      given.kind === "exec" || given.kind === "start" ? { ...given, user: given.user ?? user, workdir: given.workdir ?? workdir } : given;
    const { name: _name, once: _once, ...what } = step;
    key = keyOf(key, what);
    layers.push({ kind: "step", key, title: titleOf(step), step });
  }
  return { layers, key: keyOf(key, { ready: recipe.ready, health: recipe.health, user, workdir }) };
}

/** The order of fields makes no difference, that of lists does */
function keyOf(before: string, what: unknown): string {
  const sorted = (_key: string, value: unknown): unknown =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  return createHash("sha256")
    .update(`${before}\0${JSON.stringify(what, sorted)}`)
    .digest("hex")
    .slice(0, KEY_LENGTH);
}

/** What it says of itself, else the beginning of what it does */
function titleOf(step: Step): string {
  if (step.name !== undefined) return step.name;
  if (step.kind === "file") return `Writing ${step.file.to}`;
  if (step.kind === "eval") return short(step.eval);
  return step.kind === "start" ? `Starting ${wordsOf(step.start)}` : wordsOf(step.exec);
}

/** A command as it was written */
export function wordsOf(args: readonly string[]): string {
  return short(args[0] === "/bin/sh" && args[1] === "-c" && args.length === 3 ? (args[2] ?? "") : args.join(" "));
}

function short(text: string): string {
  const [line = "", ...more] = text.trim().split("\n");
  return line.length > MAX_TITLE || more.length > 0 ? `${line.slice(0, MAX_TITLE)}…` : line;
}

// Build plan: layers and their cache keys. A key covers everything that the layer depends on.

import { createHash } from "node:crypto";
import type { CopiedFile, Recipe, Step } from "./schema.ts";

/** Increment when the same steps would produce a different snapshot */
const FORMAT = 2;
const KEY_LENGTH = 32;
const MAX_TITLE = 60;

/** Base of a build: an image to boot, or an existing snapshot */
export type Base = { kind: "image"; /** hash of an imported archive */ content?: string } | { kind: "snapshot"; id: string };

export type PlannedLayer = { key: string; title: string } & (
  | { kind: "boot" }
  | { kind: "copy"; file: CopiedFile }
  | { kind: "step"; step: Step }
);

export type Plan = { layers: PlannedLayer[]; /** key of the finished snapshot */ key: string };

/** `contents`: hashes of the copied files, in order */
export function planOf(recipe: Recipe, base: Base, contents: readonly string[]): Plan {
  const { image, machine, kernels, env, network, user, workdir } = recipe;
  const beginning = base.kind === "image" ? { image, content: base.content, machine, kernels } : { snapshot: base.id };
  let key = firstKey({ ...beginning, env, network });
  const layers: PlannedLayer[] = base.kind === "image" ? [{ kind: "boot", key, title: "Booting the image" }] : [];
  for (const [index, file] of recipe.files.entries()) {
    key = keyAfter(key, { file, content: contents[index] });
    layers.push({ kind: "copy", key, title: `Copying ${file.from}`, file });
  }
  for (const given of recipe.steps) {
    const step =
      given.kind === "exec" || given.kind === "start" ? { ...given, user: given.user ?? user, workdir: given.workdir ?? workdir } : given;
    const { name: _name, once: _once, ...what } = step;
    key = keyAfter(key, what);
    layers.push({ kind: "step", key, title: titleOf(step), step });
  }
  return { layers, key: keyAfter(key, { ready: recipe.ready, health: recipe.health, user, workdir }) };
}

/** Key of the build's base */
export function firstKey(what: object): string {
  return keyAfter("", { format: FORMAT, ...what });
}

/** Key of the next layer. Field order is ignored, list order is not */
export function keyAfter(before: string, what: unknown): string {
  const sorted = (_key: string, value: unknown): unknown =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  return createHash("sha256")
    .update(`${before}\0${JSON.stringify(what, sorted)}`)
    .digest("hex")
    .slice(0, KEY_LENGTH);
}

/** The step's name, otherwise the beginning of its command or code */
function titleOf(step: Step): string {
  if (step.name !== undefined) return step.name;
  if (step.kind === "file") return `Writing ${step.file.to}`;
  if (step.kind === "eval") return short(step.eval);
  return step.kind === "start" ? `Starting ${wordsOf(step.start)}` : wordsOf(step.exec);
}

/** Command as written in the recipe */
export function wordsOf(args: readonly string[]): string {
  return short(args[0] === "/bin/sh" && args[1] === "-c" && args.length === 3 ? (args[2] ?? "") : args.join(" "));
}

function short(text: string): string {
  const [line = "", ...more] = text.trim().split("\n");
  return line.length > MAX_TITLE || more.length > 0 ? `${line.slice(0, MAX_TITLE)}…` : line;
}

// Builds of recipes. A recipe and its files travel as one tar archive: only the files that the recipe names leave this machine.

import { ForkdError } from "./errors.ts";
import { pairs } from "./wire.ts";
import type { BuildRecipeFields } from "./options.gen.ts";
import type { Client } from "./client.ts";
import type * as wire from "./schema.gen.ts";

const LONG_MS = 12 * 3_600_000;
const BLOCK = 512;
const MAX_NAME = 100;
const MAX_OCTAL_SIZE = 0o77777777777;
const FILE = "recipe.yaml";

/** A recipe without a folder: the content of its recipe.yaml, and the files that it names by their paths */
export type RecipeSource = { source: string; files?: Record<string, string | Uint8Array> | undefined };

export type RegistryLogin = { username: string; password: string };

export type BuildRecipeOptions = Omit<BuildRecipeFields, "idempotencyKey"> & {
  /** Values of the recipe's variables */
  set?: Record<string, string> | undefined;
  /** Login for the registry of the recipe's image, or a function that gets the image's reference and returns one */
  registry?: RegistryLogin | ((reference: string) => Promise<RegistryLogin | undefined>) | undefined;
};

/** One entry of an archive; paths of folders end with "/" */
export type ArchiveEntry = { path: string; mode: number } & (
  | { size: number; content: () => AsyncIterable<Uint8Array> }
  | { size: 0; link: string }
  | { size: 0; folder: true }
);

/** What a build sends */
export type PackedRecipe = {
  /** folder of the recipe in the archive; without it, one that comes with the daemon's forkd */
  recipe: string | undefined;
  entries: ArchiveEntry[];
  /** files in the archive that errors name, with their paths on this machine */
  shown: Map<string, string>;
  /** image that is pulled from a registry */
  reference: string | null;
};

export async function buildRecipe(client: Client, given: string | RecipeSource, opts: BuildRecipeOptions): Promise<wire.BuiltRecipe> {
  const { signal, timeoutMs = LONG_MS, onProgress, tag, set, test, noCache, registry } = opts;
  const packed = typeof given === "string" ? await packNamed(client, given, opts) : await packSource(client, given, opts);
  const { recipe, entries, shown, reference } = packed;
  const login = typeof registry === "function" ? (reference === null ? undefined : await registry(reference)) : registry;
  const headers = { "content-type": "application/x-tar", ...(login ? { "x-registry-auth": base64(JSON.stringify(login)) } : {}) };
  const query = { recipe, tag, set: pairs(set), test, no_cache: noCache };
  const call = { signal, timeoutMs, query, headers, content: entries.length === 0 ? new Uint8Array() : archiveOf(entries) };
  return await withLocalPaths(shown, async () => client.progress("POST", "/v1/recipes/build", call, onProgress));
}

/** The daemon names files by their paths in the archive; the caller knows them by their paths here */
export async function withLocalPaths<T>(shown: ReadonlyMap<string, string>, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "RECIPE_INVALID") throw error;
    error.message = error.message
      .split("\n")
      .map((line) => {
        const [, file = "", rest = ""] = /^(.*?)(:\d+:\d+: .*)$/.exec(line) ?? [];
        return shown.has(file) ? `${shown.get(file)}${rest}` : line;
      })
      .join("\n");
    throw error;
  }
}

async function packNamed(client: Client, given: string, opts: BuildRecipeOptions): Promise<PackedRecipe> {
  const { signal, timeoutMs, set } = opts;
  const isPath = given.includes("/") || given === "." || given === "..";
  const included = { recipe: given, entries: [], shown: new Map<string, string>(), reference: null };
  if (!isPath) {
    const all = await client.json<wire.Recipe[]>("GET", "/v1/recipes", { signal, timeoutMs });
    if (all.some(({ name }) => name === given) || !hasNode()) return included;
  }
  const { packFolder } = await import("./recipe-node.ts");
  const check = async (body: wire.CheckRecipe): Promise<wire.CheckedRecipe> =>
    client.json("POST", "/v1/recipes/check", { signal, timeoutMs, json: body });
  const packed = await packFolder(given, { check, set });
  if (packed) return packed;
  if (!isPath) return included; // the daemon answers that there is none, and which name is similar
  throw new ForkdError("NOT_FOUND", `There is no recipe ${given}: it has no ${FILE}.`, { hint: "Name a folder with a recipe.yaml." });
}

async function packSource(client: Client, { source, files = {} }: RecipeSource, opts: BuildRecipeOptions): Promise<PackedRecipe> {
  const { signal, timeoutMs, set } = opts;
  const body: wire.CheckRecipe = { source, ...(set ? { set } : {}) };
  const checked = await client.json<wire.CheckedRecipe>("POST", "/v1/recipes/check", { signal, timeoutMs, json: body });
  const entries = Object.entries({ ...files, [FILE]: source }).map(([path, content]) => fileEntry(path, content));
  return { recipe: undefined, entries, shown: new Map(), reference: checked.registry_reference };
}

function fileEntry(path: string, given: string | Uint8Array): ArchiveEntry {
  const bytes = typeof given === "string" ? new TextEncoder().encode(given) : given;
  return {
    path,
    mode: 0o644,
    size: bytes.length,
    content: async function* () {
      yield bytes;
    },
  };
}

/** A tar archive (ustar, with pax records for long names) */
export async function* archiveOf(entries: readonly ArchiveEntry[]): AsyncGenerator<Uint8Array> {
  for (const entry of entries) {
    const link = "link" in entry ? entry.link : "";
    const records = [
      ...(bytesOf(entry.path).length > MAX_NAME ? [record("path", entry.path)] : []),
      ...(bytesOf(link).length > MAX_NAME ? [record("linkpath", link)] : []),
      ...(entry.size > MAX_OCTAL_SIZE ? [record("size", String(entry.size))] : []),
    ].join("");
    if (records !== "") yield block({ path: "pax", flag: "x", mode: 0o644, size: bytesOf(records).length, link: "" });
    if (records !== "") yield padded(bytesOf(records));
    yield block({ ...entry, flag: "link" in entry ? "2" : "folder" in entry ? "5" : "0", link });
    if (!("content" in entry)) continue;
    let left = entry.size;
    for await (const piece of entry.content()) {
      left -= piece.length;
      yield piece;
    }
    if (left !== 0) throw new Error(`Cannot send ${entry.path}: it changed while it was read.`);
    yield new Uint8Array((BLOCK - (entry.size % BLOCK)) % BLOCK);
  }
  yield new Uint8Array(2 * BLOCK);
}

type Header = { path: string; flag: string; mode: number; size: number; link: string };

function block({ path, flag, mode, size, link }: Header): Uint8Array {
  const data = new Uint8Array(BLOCK);
  const put = (at: number, text: string, length: number): void => data.set(bytesOf(text).subarray(0, length), at);
  const octal = (at: number, length: number, value: number): void => put(at, value.toString(8).padStart(length - 1, "0"), length - 1);
  put(0, path, MAX_NAME);
  octal(100, 8, mode);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, size > MAX_OCTAL_SIZE ? 0 : size);
  octal(136, 12, 0);
  put(156, flag, 1);
  put(157, link, MAX_NAME);
  put(257, "ustar\x0000", 8);
  data.fill(0x20, 148, 156);
  const sum = data.reduce((total, byte) => total + byte, 0);
  put(148, `${sum.toString(8).padStart(6, "0")}\0 `, 8);
  return data;
}

/** A pax record starts with its length, which counts its own digits */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const length = bytesOf(rest).length;
  let total = length + String(length).length;
  if (length + String(total).length !== total) total = length + String(total).length;
  return `${total}${rest}`;
}

function padded(bytes: Uint8Array): Uint8Array {
  const whole = new Uint8Array(Math.ceil(bytes.length / BLOCK) * BLOCK);
  whole.set(bytes);
  return whole;
}

function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...bytesOf(text)));
}

function hasNode(): boolean {
  return typeof process === "object" && typeof process.versions?.node === "string";
}

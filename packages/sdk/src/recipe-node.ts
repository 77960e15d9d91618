// Packs a recipe's folder. Loaded only where a folder is built, because it needs Node's file system.

import { createReadStream } from "node:fs";
import { lstat, readdir, readFile, readlink, stat } from "node:fs/promises";
import { basename, dirname, join, posix, relative, resolve } from "node:path";
import { withLocalPaths, type ArchiveEntry, type PackedRecipe } from "./recipe.ts";
import type * as wire from "./schema.gen.ts";

const FILE = "recipe.yaml";
const MODE_BITS = 0o777;

type Work = { check: (body: wire.CheckRecipe) => Promise<wire.CheckedRecipe>; packed: PackedRecipe };
type Options = { check: Work["check"]; set?: Record<string, string> | undefined };

/** The recipe of a folder or a file, the files that it names, and the recipes beside it that it is built on; undefined: there is none */
export async function packFolder(given: string, { check, set }: Options): Promise<PackedRecipe | undefined> {
  const file = await recipeFile(resolve(given));
  if (file === undefined) return undefined;
  const packed: PackedRecipe = { recipe: undefined, entries: [], shown: new Map(), reference: null };
  packed.recipe = await add(file, set, { check, packed });
  return packed;
}

/** The path as messages show it */
function shownPath(file: string): string {
  const here = relative(process.cwd(), file);
  return here.startsWith("..") ? file : here;
}

async function add(file: string, set: Record<string, string> | undefined, { check, packed }: Work): Promise<string> {
  const source = await readFile(file, "utf8");
  const folder = dirname(file);
  const inFolder = basename(file) === FILE ? { folder: basename(folder) } : {};
  const before = new Map([[`${inFolder.folder === undefined ? "" : `${inFolder.folder}/`}${FILE}`, shownPath(file)]]);
  const {
    name,
    files,
    base,
    registry_reference: reference,
  } = await withLocalPaths(before, async () => check({ source, ...inFolder, ...(set ? { set } : {}) }));
  if (packed.shown.has(`${name}/${FILE}`)) return name;
  packed.shown.set(`${name}/${FILE}`, shownPath(file));
  packed.reference ??= reference;
  const bytes = new TextEncoder().encode(source);
  packed.entries.push({
    path: `${name}/${FILE}`,
    mode: 0o644,
    size: bytes.length,
    content: async function* () {
      yield bytes;
    },
  });
  for (const from of files) await addFile(resolve(folder, from), posix.join(name, from).replace(/\/$/, ""), packed.entries);
  const beside = base === null ? undefined : await fileIn(resolve(folder, "..", base));
  if (beside !== undefined) await add(beside, undefined, { check, packed });
  return name;
}

/** A link that the recipe names stands for its target; one below a folder stays a link. The daemon reports a file that is missing */
async function addFile(path: string, at: string, entries: ArchiveEntry[], isNamed = true): Promise<void> {
  try {
    const info = isNamed ? await stat(path) : await lstat(path);
    const mode = info.mode & MODE_BITS;
    if (info.isSymbolicLink()) entries.push({ path: at, mode, size: 0, link: await readlink(path) });
    else if (info.isDirectory()) {
      entries.push({ path: `${at}/`, mode, size: 0, folder: true });
      for (const name of (await readdir(path)).toSorted()) await addFile(join(path, name), `${at}/${name}`, entries, false);
    } else if (info.isFile()) {
      const content = (): AsyncIterable<Uint8Array> =>
        info.size === 0 ? (async function* () {})() : createReadStream(path, { end: info.size - 1 });
      entries.push({ path: at, mode, size: info.size, content });
    }
  } catch (error) {
    if (!isMissing(error) || !isNamed) throw error;
  }
}

/** A recipe by its own file, or that of a folder */
async function recipeFile(path: string): Promise<string | undefined> {
  return /\.ya?ml$/.test(path) ? ((await isFile(path)) ? path : undefined) : fileIn(path);
}

async function fileIn(folder: string): Promise<string | undefined> {
  const file = join(folder, FILE);
  return (await isFile(file)) ? file : undefined;
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === "ENOENT" || code === "ENOTDIR";
}

// Where recipes are: those that come with forkd, and folders of anybody.

import { readdir, readFile, stat } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { codeOf, failure } from "../errors.ts";
import { parseRecipe } from "./parse.ts";

import type { ParsedRecipe } from "./parse.ts";

const FILE = "recipe.yaml";
const PACKAGE = resolve(import.meta.dirname, "..", "..");
/** Inside the package where it was installed alone, beside the packages in the repository */
const SHIPPED = [join(PACKAGE, "recipes"), resolve(PACKAGE, "..", "..", "recipes")];

export type FoundRecipe = ParsedRecipe & {
  file: string;
  folder: string;
  /** the tag of its snapshot unless another is asked for */ tag: string;
};

/** By the name of one that comes with forkd, or by a folder or a file */
export async function loadRecipe(given: string, set: Record<string, string> = {}, near?: string): Promise<FoundRecipe> {
  const isPath = given.includes("/") || given === "." || given === "..";
  const folders = [...(near === undefined ? [] : [near]), ...SHIPPED].map((folder) => join(folder, given));
  for (const path of isPath ? [resolve(given)] : [...folders, resolve(given)]) {
    const file = await recipeFile(path);
    if (file !== undefined) return readRecipe(file, set);
  }
  throw failure(
    "NOT_FOUND",
    `There is no recipe ${given}: ${isPath ? `${resolve(given)} has no ${FILE}` : "none of that name comes with forkd, and there is no such folder here"}.`,
    "List them with 'forkd recipes'.",
  );
}

/** The recipe that another one begins with: beside it, or one that comes with forkd */
export async function loadBase({ folder }: FoundRecipe, name: string): Promise<FoundRecipe> {
  return loadRecipe(name, {}, resolve(folder, ".."));
}

/** Folders of recipes: those that come with forkd, or those of a folder */
export async function recipeFiles(folder?: string): Promise<string[]> {
  for (const parent of folder === undefined ? SHIPPED : [resolve(folder)]) {
    const names = await namesIn(parent);
    if (names === undefined) continue;
    const files = await Promise.all(names.toSorted().map(async (name) => recipeFile(join(parent, name))));
    const own = folder === undefined ? undefined : await recipeFile(parent);
    return [own, ...files].filter((file) => file !== undefined);
  }
  if (folder === undefined) return [];
  throw failure("NOT_FOUND", `There is no folder ${folder}.`, "Name a folder that holds folders with a recipe.yaml.");
}

export async function readRecipe(file: string, set: Record<string, string> = {}): Promise<FoundRecipe> {
  const here = relative(process.cwd(), file);
  const parsed = parseRecipe(await readFile(file, "utf8"), here.startsWith("..") ? file : here, set);
  const folder = dirname(file);
  const { recipe } = parsed;
  if (basename(file) === FILE && recipe.name !== basename(folder))
    throw parsed.wrong(["name"], `must be the name of its folder, ${basename(folder)}`);
  return { ...parsed, file, folder, tag: recipe.tag ?? recipe.name };
}

/** The recipe itself, or that of a folder */
async function recipeFile(path: string): Promise<string | undefined> {
  for (const file of /\.ya?ml$/.test(path) ? [path] : [join(path, FILE)]) if (await isFile(file)) return file;
  return undefined;
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return false;
    throw error;
  }
}

async function namesIn(folder: string): Promise<string[] | undefined> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

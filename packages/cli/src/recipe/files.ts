// Recipes in folders of this machine.

import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { codeOf, failure } from "../errors.ts";

const FILE = "recipe.yaml";

/** Files of the recipes in a folder: its own, and those of the folders in it */
export async function recipeFiles(folder: string): Promise<string[]> {
  const path = resolve(folder);
  const names = await namesIn(path);
  const all = [path, ...names.toSorted().map((name) => join(path, name))].map((each) => join(each, FILE));
  const found = await Promise.all(all.map(async (file) => ((await isFile(file)) ? file : undefined)));
  return found.filter((file) => file !== undefined);
}

/** Name of the folder that a recipe is in */
export function folderOf(file: string): string {
  return basename(dirname(file));
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
    throw failure("NOT_FOUND", `There is no folder ${folder}.`, "Name a folder that holds folders with a recipe.yaml.");
  }
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return false;
    throw error;
  }
}

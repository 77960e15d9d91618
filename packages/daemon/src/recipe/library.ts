// Recipe lookup in an upload and among the included recipes.

import { posix } from "node:path";
import { installation } from "@forkd/runtime/host/installation";
import { notFound } from "@forkd/runtime/util/not-found";
import { RecipeFiles } from "./files.ts";
import { MAX_SOURCE_BYTES, parseRecipe, type ParsedRecipe } from "./parse.ts";

const FILE = "recipe.yaml";

export type FoundRecipe = ParsedRecipe & {
  files: RecipeFiles;
  /** folder of the recipe within the files */
  folder: string;
  /** default tag of its snapshot */
  tag: string;
};

/** Included recipe with this name */
export async function loadIncluded(name: string, set: Record<string, string> = {}): Promise<FoundRecipe> {
  const files = await RecipeFiles.at(installation.recipesDir);
  if (!hasRecipe(files, name)) throw notFound("recipe", name, includedIn(files));
  return load(files, name, set);
}

export async function loadAllIncluded(): Promise<FoundRecipe[]> {
  const files = await RecipeFiles.at(installation.recipesDir);
  return Promise.all(includedIn(files).map(async (name) => load(files, name)));
}

/** Recipe by name: uploaded, otherwise included. Without a name: `recipe.yaml` at the top of the upload */
export async function loadRecipe(upload: RecipeFiles, name: string | undefined, set: Record<string, string>): Promise<FoundRecipe> {
  if (name === undefined) return load(upload, "", set);
  return hasRecipe(upload, name) ? load(upload, name, set) : loadIncluded(name, set);
}

/** Base recipe: in the folder beside the recipe, otherwise included with forkd */
export async function loadBase({ files, wrong }: FoundRecipe, name: string): Promise<FoundRecipe> {
  if (hasRecipe(files, name)) return load(files, name);
  try {
    return await loadIncluded(name);
  } catch (error) {
    if ((error as { code?: unknown }).code !== "NOT_FOUND") throw error;
    throw wrong(["image", "recipe"], `there is no recipe ${name} beside this one, and none comes with forkd`);
  }
}

async function load(files: RecipeFiles, folder: string, set: Record<string, string> = {}): Promise<FoundRecipe> {
  const file = posix.join(folder, FILE);
  const parsed = parseRecipe(await sourceOf(files, file), file, set);
  const { recipe } = parsed;
  if (folder !== "" && recipe.name !== folder) throw parsed.wrong(["name"], `must be the name of its folder, ${folder}`);
  return { ...parsed, files, folder, tag: recipe.tag ?? recipe.name };
}

/** Reads one byte more than allowed, so that a larger file is rejected and not truncated */
async function sourceOf(files: RecipeFiles, file: string): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of files.read(file)) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes > MAX_SOURCE_BYTES) break;
  }
  return Buffer.concat(pieces).toString();
}

function hasRecipe(files: RecipeFiles, name: string): boolean {
  return !name.includes("/") && files.find(posix.join(name, FILE)) === "file";
}

function includedIn(files: RecipeFiles): string[] {
  return files
    .folders()
    .filter((name) => hasRecipe(files, name))
    .toSorted();
}

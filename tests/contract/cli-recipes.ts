// Command lines for the recipe cases.

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { options, repeated, text, when } from "./words.ts";
import type { Lines } from "./cli-driver.ts";

export const recipeLines: Lines = {
  listRecipes: () => ({ argv: ["recipes"] }),
  buildRecipe: ({ query, body }) => ({
    argv: [
      "build",
      body["source"] === undefined ? text(query["recipe"]) : folderWith(text(body["source"])),
      ...options(query, { tag: "--tag" }),
      ...repeated("--set", query["set"]),
      ...when(query["test"], "--test"),
      ...when(query["no_cache"], "--no-cache"),
    ],
  }),
};

/** Makes a folder with the recipe, named after it */
function folderWith(source: string): string {
  const [, name = ""] = /^name: (.*)$/m.exec(source) ?? [];
  const all = join(tmpdir(), `forkd-contract-recipes-${process.pid}`);
  const folder = join(all, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "recipe.yaml"), source);
  process.once("exit", () => rmSync(all, { recursive: true, force: true }));
  return folder;
}

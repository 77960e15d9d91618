// forkd recipes ls

import { readFile } from "node:fs/promises";
import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { codeOf, failure } from "../../errors.ts";
import { printJson, printLine, printNote, printTable } from "../../terminal/output.ts";

import type { RecipeInfo } from "forkd";
import type { Cli } from "../../cli.ts";

export function recipesLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the recipes that come with forkd, or those of a folder")
    .argument("[folder]", "a folder that holds folders with a recipe.yaml")
    .option("--json", "print JSON")
    .action(async (folder: string | undefined) => {
      const { rows, wrong } = await listed(cli, folder);
      if (cli.json) printJson(rows);
      else if (rows.length === 0) printLine("There are no recipes.");
      else
        printTable(rows, [
          { title: "NAME", value: ({ name }) => name },
          { title: "TAG", value: ({ tag }) => tag },
          { title: "DESCRIPTION", value: ({ description }) => description, wraps: true },
        ]);
      if (wrong.length === 0) return;
      for (const message of wrong) printNote(message);
      throw failure("RECIPE_INVALID", `${wrong.length} recipes cannot be used.`, "docs/recipes.md explains the format.");
    });
}

type Listed = { rows: RecipeInfo[]; /** messages about recipes that are not valid */ wrong: string[] };

async function listed(cli: Cli, folder: string | undefined): Promise<Listed> {
  const forkd = await connect(cli);
  if (folder === undefined) return { rows: await forkd.listRecipes({ signal: cli.signal }), wrong: [] };
  const { folderOf, recipeFiles } = await import("../../recipe/files.ts");
  const rows = [];
  const wrong: string[] = [];
  for (const path of await recipeFiles(folder)) {
    const at = folderOf(path);
    try {
      const { name, tag, description, variables } = await forkd.checkRecipe(await readFile(path, "utf8"), {
        folder: at,
        signal: cli.signal,
      });
      rows.push({ name, tag, description, variables, path });
    } catch (error) {
      if (!(error instanceof Error) || codeOf(error) !== "RECIPE_INVALID") throw error;
      wrong.push(error.message.replaceAll(`${at}/recipe.yaml:`, `${path}:`));
    }
  }
  return { rows, wrong };
}

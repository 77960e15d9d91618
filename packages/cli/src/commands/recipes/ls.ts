// forkd recipes ls

import { Command } from "commander";
import { codeOf, failure } from "../../errors.ts";
import { printJson, printLine, printNote, printTable } from "../../output.ts";

import type { Cli } from "../../cli.ts";

export function recipesLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the recipes that come with forkd, or those of a folder")
    .argument("[folder]", "a folder that holds folders with a recipe.yaml")
    .option("--json", "print JSON")
    .action(async (folder: string | undefined) => {
      const { readRecipe, recipeFiles } = await import("../../recipe/find.ts");
      const rows = [];
      const wrong: string[] = [];
      for (const path of await recipeFiles(folder)) {
        try {
          const { recipe, tag } = await readRecipe(path);
          rows.push({ name: recipe.name, tag, description: recipe.description, variables: recipe.vars, path });
        } catch (error) {
          if (!(error instanceof Error) || codeOf(error) !== "RECIPE_INVALID") throw error;
          wrong.push(error.message);
        }
      }
      if (cli.json) printJson(rows);
      else if (rows.length === 0) printLine("There are no recipes.");
      else
        printTable(rows, [
          { title: "NAME", value: ({ name }) => name },
          { title: "TAG", value: ({ tag }) => tag },
          { title: "DESCRIPTION", value: ({ description }) => description },
        ]);
      if (wrong.length === 0) return;
      for (const message of wrong) printNote(message);
      throw failure("RECIPE_INVALID", `${wrong.length} recipes cannot be used.`, "docs/recipes.md explains the format.");
    });
}

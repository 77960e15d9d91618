// forkd recipes test

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { addPair } from "../../options/values.ts";
import { printJson } from "../../terminal/output.ts";

import type { Cli } from "../../cli.ts";

type Options = { set?: Record<string, string> };

export function recipesTestCommand(cli: Cli): Command {
  return new Command("test")
    .description("run the tests of recipes, each in its own fork; a recipe that is missing or has changed is built first")
    .argument("<recipe...>", "recipes that come with forkd, or folders with a recipe.yaml")
    .option("--set <key=value>", "set a variable of the recipe; may be repeated", addPair)
    .option("--json", "print JSON")
    .action(async (names: string[], opts: Options) => {
      const { buildRecipe, printBuilt } = await import("../../recipe/build.ts");
      const forkd = await connect(cli);
      const results: object[] = [];
      for (const name of names) {
        const built = await buildRecipe(cli, forkd, name, { set: opts.set, test: true }, cli.json);
        if (cli.json) results.push(built);
        else printBuilt(cli, built);
      }
      if (cli.json) printJson(results);
    });
}

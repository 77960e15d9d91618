// forkd recipes test

import { Command } from "commander";
import { connect } from "../../daemon.ts";
import { addPair } from "../../options.ts";
import { printJson } from "../../output.ts";

import type { Cli } from "../../cli.ts";

type Options = { set?: Record<string, string> };

export function recipesTestCommand(cli: Cli): Command {
  return new Command("test")
    .description("run the tests of recipes, each in a fork of its own; what is missing or changed is built first")
    .argument("<recipe...>", "recipes that come with forkd, or folders with a recipe.yaml")
    .option("--set <key=value>", "set a variable of the recipe; may be repeated", addPair)
    .option("--json", "print JSON")
    .action(async (names: string[], opts: Options) => {
      const [{ loadRecipe }, { buildRecipe }, { buildReport }] = await Promise.all([
        import("../../recipe/find.ts"),
        import("../../recipe/build.ts"),
        import("../../recipe/report.ts"),
      ]);
      const all = await Promise.all(names.map(async (name) => loadRecipe(name, opts.set)));
      const forkd = await connect(cli);
      const results: object[] = [];
      for (const found of all) {
        const report = buildReport(cli, forkd, {});
        const built = await buildRecipe(report.work, found, { test: true });
        if (cli.json) results.push(report.summary(built));
        else report.print(built);
      }
      if (cli.json) printJson(results);
    });
}

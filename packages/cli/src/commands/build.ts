// forkd build

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { addPair } from "../options.ts";

import type { Cli } from "../cli.ts";

type Options = { tag?: string; set?: Record<string, string>; test?: boolean; cache: boolean; quiet?: boolean };

export function buildCommand(cli: Cli): Command {
  return new Command("build")
    .description("build a recipe: an image, files, steps and readiness become a snapshot; what did not change is not done again")
    .argument("<recipe>", "a recipe that comes with forkd, or a folder with a recipe.yaml")
    .option("--tag <tag>", "tag of the snapshot (default: what the recipe says)")
    .option("--set <key=value>", "set a variable of the recipe; may be repeated", addPair)
    .option("--test", "run the recipe's tests; without their success there is no new snapshot")
    .option("--no-cache", "do everything again, the image too")
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (given: string, opts: Options) => {
      const [{ loadRecipe }, { buildRecipe }, { buildReport }] = await Promise.all([
        import("../recipe/find.ts"),
        import("../recipe/build.ts"),
        import("../recipe/report.ts"),
      ]);
      const found = await loadRecipe(given, opts.set);
      const report = buildReport(cli, await connect(cli), opts);
      report.print(await buildRecipe(report.work, found, { tag: opts.tag, noCache: !opts.cache, test: opts.test }));
    });
}

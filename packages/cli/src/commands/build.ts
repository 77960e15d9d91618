// forkd build

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { addPair } from "../options/values.ts";

import type { Cli } from "../cli.ts";

type Options = { tag?: string; set?: Record<string, string>; test?: boolean; cache: boolean; quiet?: boolean };

export function buildCommand(cli: Cli): Command {
  return new Command("build")
    .description("build a recipe: an image, files, steps and readiness become a snapshot; steps that did not change are not repeated")
    .argument("<recipe>", "a recipe that comes with forkd, or a folder with a recipe.yaml")
    .option("--tag <tag>", "tag of the snapshot (default: the recipe's own)")
    .option("--set <key=value>", "set a variable of the recipe; may be repeated", addPair)
    .option("--test", "run the recipe's tests; if one fails, there is no new snapshot")
    .option("--no-cache", "repeat all steps, and make the image again")
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (recipe: string, opts: Options) => {
      const { buildRecipe, printBuilt } = await import("../recipe/build.ts");
      const { tag, set, test, cache, quiet } = opts;
      const isSilent = cli.json || quiet === true;
      printBuilt(cli, await buildRecipe(cli, await connect(cli), recipe, { tag, set, test, noCache: !cache }, isSilent), { quiet });
    });
}

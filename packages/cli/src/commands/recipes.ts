// forkd recipes: lists recipes, and runs their tests.

import { Command } from "commander";
import { recipesLsCommand } from "./recipes/ls.ts";
import { recipesTestCommand } from "./recipes/test.ts";

import type { Cli } from "../cli.ts";

export function recipesCommand(cli: Cli): Command {
  return new Command("recipes")
    .description("list recipes, and run their tests")
    .addCommand(recipesLsCommand(cli), { isDefault: true })
    .addCommand(recipesTestCommand(cli));
}

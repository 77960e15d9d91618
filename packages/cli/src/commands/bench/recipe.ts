// forkd bench recipe

import { Command } from "commander";
import { connect } from "../../daemon.ts";
import { printJson, printTable } from "../../output.ts";
import { positiveInteger, printMethod } from "./report.ts";

import type { RecipeFigure } from "../../recipe/bench.ts";
import type { Cli } from "../../cli.ts";

const METHOD =
  "fork: from the request for a sandbox until all checks of health are true. fresh: a VM boots from the same image, warms its interpreters, does the steps that are not marked once, and waits for readiness and health. Medians of rounds in turns, as a client of the daemon sees them";

export function benchRecipeCommand(cli: Cli): Command {
  return new Command("recipe")
    .description("how soon a fork of a recipe is ready, against a VM that boots and does it all; builds what is missing")
    .argument("<recipe...>", "recipes that come with forkd, or folders with a recipe.yaml")
    .option("--rounds <count>", "how often each", positiveInteger, 5)
    .option("--json", "print JSON")
    .action(async (names: string[], opts: { rounds: number }) => {
      const [{ describeMachine, inTurns, median }, { benchRecipe }, { loadRecipe }, { buildReport }] = await Promise.all([
        import("@forkd/bench"),
        import("../../recipe/bench.ts"),
        import("../../recipe/find.ts"),
        import("../../recipe/report.ts"),
      ]);
      const all = await Promise.all(names.map(async (name) => loadRecipe(name)));
      const forkd = await connect(cli);
      const { work } = buildReport(cli, forkd, { quiet: true });
      const figures: RecipeFigure[] = [];
      const turns = { rounds: opts.rounds, warmUp: opts.rounds > 1 ? 1 : 0, signal: cli.signal };
      for (const found of all) figures.push(await benchRecipe(work, found, { inTurns: async (sides) => inTurns(sides, turns), median }));
      const { engine, accelerator } = await forkd.status({ signal: cli.signal });
      const machine = describeMachine({ qemuVersion: engine.replace(/^QEMU /, ""), accelerator: { accelerator } });
      if (cli.json) {
        printJson({ machine, method: METHOD, figures });
        return;
      }
      printTable(figures, [
        { title: "RECIPE", value: ({ recipe }) => recipe },
        { title: "FORK", value: ({ fork_ms: ms }) => `${ms} ms`, align: "right" },
        { title: "FRESH", value: ({ fresh_ms: ms }) => `${ms} ms`, align: "right" },
        { title: "TIMES", value: ({ times }) => String(times), align: "right" },
      ]);
      printMethod({ machine, method: METHOD });
    });
}

// forkd bench recipe

import { Command } from "commander";
import { connect } from "../../daemon/connect.ts";
import { printJson, printTable } from "../../terminal/output.ts";
import { loadBenchmarks } from "./load.ts";
import { positiveInteger, printMethod } from "./report.ts";

import type { RecipeFigure } from "../../recipe/bench.ts";
import type { Cli } from "../../cli.ts";

const METHOD =
  "fork: from the request for a sandbox until all checks of health are true. fresh: a VM boots from the same image, warms its interpreters, does the steps that are not marked once, and waits for readiness and health. Medians of rounds in turns, as a client of the daemon sees them";

export function benchRecipeCommand(cli: Cli): Command {
  return new Command("recipe")
    .description("time until a fork of a recipe is ready, compared with a VM that boots and runs all steps; builds missing recipes")
    .argument("<recipe...>", "recipes that come with forkd, or folders with a recipe.yaml")
    .option("--rounds <count>", "measurements of each", positiveInteger, 5)
    .option("--json", "print JSON")
    .action(async (names: string[], opts: { rounds: number }) => {
      const [{ describeMachine, inTurns, median }, { loadLocal }, { benchRecipe }, { buildRecipe }] = await Promise.all([
        loadBenchmarks(),
        import("@forkd/daemon"),
        import("../../recipe/bench.ts"),
        import("../../recipe/build.ts"),
      ]);
      const all = await Promise.all(names.map(async (name) => ({ name, found: await loadLocal(name) })));
      const forkd = await connect(cli);
      const figures: RecipeFigure[] = [];
      const turns = { rounds: opts.rounds, warmUp: opts.rounds > 1 ? 1 : 0, signal: cli.signal };
      for (const { name, found } of all) {
        const { tag } = await buildRecipe(cli, forkd, name, {}, true);
        figures.push(await benchRecipe({ cli, forkd }, { found, tag }, { inTurns: async (sides) => inTurns(sides, turns), median }));
      }
      const { engine, accelerator } = await forkd.status({ signal: cli.signal });
      const machine = describeMachine({ engine: { version: engine.replace(/^QEMU /, "") }, accelerator: { accelerator } });
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

// forkd top: the tree with its usage, live on a terminal; with an id, the processes of that sandbox

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { signalExitCode } from "../exit.ts";
import { isTerminal, outputWidth, printJson, printLine } from "../terminal/output.ts";
import { isUtf8 } from "../terminal/tree-lines.ts";
import { listProcesses } from "./ps.ts";

import type { Controller, SandboxStats, TreeNode, TreeSandbox } from "forkd";
import type { Cli } from "../cli.ts";

/** In the JSON form each sandbox of the tree has its usage; null: it is suspended, or ended meanwhile */
type UsedNode = Omit<TreeNode, "sandboxes" | "snapshots"> & {
  sandboxes: (TreeSandbox & { usage: SandboxStats | null })[];
  snapshots: UsedNode[];
};

export function topCommand(cli: Cli): Command {
  return new Command("top")
    .description(
      "the tree with its usage, live, with keys to fork, branch and end; in a file or pipe, and as JSON, once. " +
        "With an id, the processes in that sandbox, as ps",
    )
    .argument("[id]", "id or name of a sandbox")
    .option("--json", "print JSON")
    .action(async (id: string | undefined) => (id === undefined ? showTree(cli) : listProcesses(cli, id, {})));
}

async function showTree(cli: Cli): Promise<void> {
  const forkd = await connect(cli);
  cli.isViewer = true;
  if (cli.json || !isTerminal() || !process.stdin.isTTY) {
    await printOnce(cli, forkd);
    return;
  }
  const { liveTop } = await import("../top/live.ts");
  const ending = await liveTop(forkd, cli.signal);
  if (ending === "interrupt") cli.exitCode = signalExitCode("SIGINT");
}

async function printOnce(cli: Cli, forkd: Controller): Promise<void> {
  const [{ fetchFacts }, { rowsOf }, { plainLines }] = await Promise.all([
    import("../top/live.ts"),
    import("../top/rows.ts"),
    import("../top/frame.ts"),
  ]);
  const { facts, stats } = await fetchFacts(forkd, cli.signal);
  if (cli.json) {
    const usage = new Map(stats.map((row) => [row.id, row]));
    printJson({ roots: facts.tree.roots.map((root) => used(root, usage)) });
    return;
  }
  const rows = rowsOf(facts, { sort: "name", filter: "", collapsed: new Set() });
  if (rows.length === 0) printLine("There are no snapshots. Make one with 'forkd snapshot create'.");
  else for (const line of plainLines(rows, { width: outputWidth(), utf8: isUtf8(), now: Date.now() })) printLine(line);
}

function used(node: TreeNode, usage: ReadonlyMap<string, SandboxStats>): UsedNode {
  return {
    ...node,
    sandboxes: node.sandboxes.map((sandbox) => ({ ...sandbox, usage: usage.get(sandbox.id) ?? null })),
    snapshots: node.snapshots.map((each) => used(each, usage)),
  };
}

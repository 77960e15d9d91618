// Times of one snapshot as a client of the daemon measures them.

import { formatMs } from "../../terminal/format.ts";
import { printTable } from "../../terminal/output.ts";
import { pauseMsOf } from "../../terminal/snapshot-table.ts";
import { removed, temporaryName } from "../../guest/temporary.ts";

import type { Controller } from "forkd";
import type { Cli } from "../../cli.ts";

export type DaemonBench = {
  tag: string;
  n: number;
  /** all of them, until the daemon has answered */
  spawn_ms: number;
  /** mean of one `true` in each sandbox, one after the other */
  exec_ms: number;
  branch_ms: number;
  /** pause of the source of the branch */
  pause_ms: number | null;
  /** n forks of the branch */
  fanout_ms: number;
  /** until everything is removed */
  cleanup_ms: number;
};

type Options = { tag: string; n: number; progress: (event: { step: string }) => void };

export async function benchDaemon(cli: Cli, forkd: Controller, opts: Options): Promise<DaemonBench> {
  const { signal } = cli;
  const { tag, n } = opts;
  const branchTag = temporaryName("bench");
  const ids: string[] = [];
  const spawn = async (from: string): Promise<string[]> => {
    const made = (await forkd.spawnSandboxes(from, { n, signal })).map((sandbox) => sandbox.id);
    ids.push(...made);
    return made;
  };
  const cleanUp = async (): Promise<void> => {
    await Promise.all(ids.splice(0).map(async (id) => removed(async (limit) => forkd.killSandbox(id, { signal: limit }))));
    await removed(async (limit) => forkd.deleteSnapshot(branchTag, { force: true, signal: limit }));
  };
  try {
    opts.progress({ step: `Forking ${n}` });
    const [all, spawnMs] = await timed(async () => spawn(tag));
    const [first = ""] = all;
    opts.progress({ step: "Running a program in each" });
    const [, execMs] = await timed(async () => {
      for (const id of all) await forkd.execCommand(id, ["true"], { signal });
    });
    opts.progress({ step: "Branching" });
    const [branch, branchMs] = await timed(async () => forkd.branchSandbox(first, { tag: branchTag, signal }));
    opts.progress({ step: `Forking ${n} of the branch` });
    const [, fanoutMs] = await timed(async () => spawn(branchTag));
    opts.progress({ step: "Removing everything" });
    const [, cleanupMs] = await timed(cleanUp);
    return {
      tag,
      n,
      spawn_ms: spawnMs,
      exec_ms: round(execMs / n),
      branch_ms: branchMs,
      pause_ms: pauseMsOf(branch),
      fanout_ms: fanoutMs,
      cleanup_ms: cleanupMs,
    };
  } finally {
    await cleanUp();
  }
}

export function printDaemonBench(report: DaemonBench): void {
  const rows: [string, number | null][] = [
    [`spawn ${report.n} of ${report.tag}`, report.spawn_ms],
    ["exec, mean of one in each", report.exec_ms],
    ["branch one", report.branch_ms],
    ["pause of its source", report.pause_ms],
    [`spawn ${report.n} of the branch`, report.fanout_ms],
    ["clean up", report.cleanup_ms],
  ];
  printTable(rows, [
    { title: "STEP", value: ([step]) => step },
    { title: "TIME", value: ([, ms]) => formatMs(ms), align: "right" },
  ]);
}

async function timed<T>(work: () => Promise<T>): Promise<[T, number]> {
  const began = performance.now();
  const result = await work();
  return [result, round(performance.now() - began)];
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10;
}

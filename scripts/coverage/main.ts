// Measures the test coverage of TypeScript and Rust, and prints it with the largest gaps.
// Usage: scripts/coverage/main.ts [--add] [--file PART]... [SUITE...]
// SUITE: unit and e2e by default. --add: adds to the results of the last run, which must have the same sources.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { Executed } from "./executed.ts";
import { RAW, ROOT, UNTESTED } from "./places.ts";
import { gapLine, gapsOf, totalsText } from "./report.ts";
import { buildAndTest, findLlvm, measureRust } from "./rust.ts";
import { measureTypeScript } from "./typescript.ts";

const COLLECT_EVERY_MS = 2000;
const LARGEST = 10;

process.exitCode = await main(process.argv.slice(2));

async function main(all: readonly string[]): Promise<number> {
  const args = all.filter((arg) => arg !== "--add");
  const llvm = await findLlvm();
  if (typeof llvm === "string") {
    console.error(llvm);
    return 1;
  }
  if (args.length === all.length) await rm(RAW, { recursive: true, force: true });
  await mkdir(RAW, { recursive: true });
  // Users that tests add write their counters here too.
  await chmod(RAW, 0o1777);
  console.log("coverage: building and testing the agent and the warden");
  const objects = await buildAndTest();

  // An interrupted run reports its results so far.
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => undefined);
  const executed = new Executed();
  const code = await runTests(args, executed);
  await executed.save(RAW);
  const typescript = await measureTypeScript(executed);
  const rust = await measureRust(llvm, objects);

  const gaps = gapsOf([...typescript, ...rust]);
  await writeFile(UNTESTED, `${gaps.map(gapLine).join("\n")}\n`);
  console.log(`=== coverage${code === 0 ? "" : "; tests FAILED"}: ${executed.processes} Node processes that ended in order`);
  if (executed.broken > 0) console.log(`${executed.broken} processes have left a broken file and are not counted`);
  console.log(totalsText("TypeScript", typescript, "branches", (path) => path.split("/").slice(0, 2).join("/")));
  console.log(totalsText("Rust", rust, "regions ", (path) => path.split("/")[0] ?? ""));
  console.log("Of Rust, regions stand for branches, which only a nightly compiler counts.");
  console.log(`=== the ${LARGEST} largest untested places; all ${gaps.length} are in ${UNTESTED}`);
  console.log(gaps.slice(0, LARGEST).map(gapLine).join("\n"));
  return code;
}

async function runTests(args: readonly string[], executed: Executed): Promise<number> {
  const hasSuite = args.some((arg, at) => !arg.startsWith("--") && args[at - 1] !== "--file");
  const options = ["--disable-warning=ExperimentalWarning", join(ROOT, "scripts", "test", "main.ts")];
  const child = spawn(process.execPath, [...options, ...args, ...(hasSuite ? [] : ["unit", "e2e"])], {
    cwd: ROOT,
    stdio: "inherit",
    env: {
      ...process.env,
      NODE_V8_COVERAGE: RAW,
      // V8 does not count all blocks of functions from the compile cache.
      NODE_DISABLE_COMPILE_CACHE: "1",
      NODE_OPTIONS: `${process.env["NODE_OPTIONS"] ?? ""} --import=${pathToFileURL(join(import.meta.dirname, "preload.mjs")).href}`.trim(),
    },
  });
  const ended = new AbortController();
  const exit = once(child, "exit") as Promise<[number | null]>;
  void exit.then(() => ended.abort());
  while (!ended.signal.aborted) {
    // Collect during the run: thousands of processes write about a megabyte each.
    await executed.collect(RAW, { isLast: false });
    await sleep(COLLECT_EVERY_MS, undefined, { signal: ended.signal }).catch(() => undefined);
  }
  await executed.collect(RAW, { isLast: true });
  const [code] = await exit;
  return code ?? 1;
}

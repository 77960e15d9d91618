// Fuzz targets in Rust: the agent and the warden, built with libFuzzer's main.

import { execFile, spawn } from "node:child_process";
import { glob, mkdir, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { corpusFolder, ROOT } from "./target.ts";

const run = promisify(execFile);

/** Target name → binary */
export const rustTargets: ReadonlyMap<string, string> = new Map([
  ["rust-agent-frames", "forkd-agent"],
  ["rust-agent-requests", "forkd-agent"],
  ["rust-agent-share", "forkd-agent"],
  ["rust-warden-delta", "forkd-warden"],
  ["rust-warden-wire", "forkd-warden"],
]);

/** libFuzzer from LLVM; any version works with any rustc, because their interface is stable */
const LIBRARY = "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a";
/** An explicit target keeps the flags away from build scripts, which are not linked with libFuzzer */
const PLATFORM = "x86_64-unknown-linux-gnu";
const TARGET_DIR = join(ROOT, "target", "fuzz");
const LONGEST_INPUT = 8192;
/** libFuzzer measures it with the wall clock, and a search with the lowest priority may get no processor for a minute */
const HANGS_AFTER_SECONDS = 600;
const MEMORY_MIB = 1024;
const LOOK_MS = 500;
const TICKS_PER_SECOND = 100;

export type RustResult = { ok: boolean; output: string; runs: number; perSecond: number; coverage: string; added: number };

/** Path of the library, or undefined if it is not installed */
export async function libFuzzer(): Promise<string | undefined> {
  const found = await Array.fromAsync(glob(LIBRARY));
  return found.toSorted((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
}

/** Builds the program of a target and returns its path */
export async function buildRust(name: string, library: string): Promise<string> {
  const binary = rustTargets.get(name) ?? "";
  const coverage = ["level=4", "inline-8bit-counters", "pc-table", "trace-compares"].map((one) => `-Cllvm-args=-sanitizer-coverage-${one}`);
  const rustflags = ["-Cpasses=sancov-module", ...coverage];
  const link = [`-Clink-arg=${library}`, "-Clink-arg=-l:libstdc++.so.6", "-Clink-arg=-lm"];
  const args = [
    "rustc",
    "--quiet",
    "--locked",
    "--profile",
    "fuzz",
    "--features",
    "fuzz",
    "--target",
    PLATFORM,
    "--package",
    binary,
    "--bin",
    binary,
    "--",
    ...link,
  ];
  await run("cargo", args, { cwd: ROOT, env: { ...process.env, RUSTFLAGS: rustflags.join(" "), CARGO_TARGET_DIR: TARGET_DIR } });
  return join(TARGET_DIR, PLATFORM, "fuzz", binary);
}

/** Saves failing inputs in `folder` */
export async function fuzzRust(
  name: string,
  program: string,
  /** `seconds` of CPU time */
  opts: { seconds: number; seed: number; folder: string; keep: boolean },
): Promise<RustResult> {
  await mkdir(opts.folder, { recursive: true });
  const fresh = await mkdtemp(join(tmpdir(), "forkd-fuzz-"));
  try {
    const limits = [`-seed=${opts.seed}`, `-timeout=${HANGS_AFTER_SECONDS}`, `-rss_limit_mb=${MEMORY_MIB}`];
    const args = [
      ...limits,
      `-max_len=${LONGEST_INPUT}`,
      "-print_final_stats=1",
      `-artifact_prefix=${opts.folder}/`,
      fresh,
      corpusFolder(name),
    ];
    const { ok, output } = await start(program, args, { name, cpuSeconds: opts.seconds });
    const added = (await readdir(fresh)).length;
    if (ok && opts.keep) await start(program, ["-merge=1", corpusFolder(name), fresh], { name });
    return {
      ok,
      output,
      added,
      runs: Number(/stat::number_of_executed_units:\s+(\d+)/.exec(output)?.[1]),
      perSecond: Number(/stat::average_exec_per_sec:\s+(\d+)/.exec(output)?.[1]),
      coverage: [...output.matchAll(/cov: (\d+) ft: (\d+)/g)].at(-1)?.[0] ?? "",
    };
  } finally {
    await rm(fresh, { recursive: true });
  }
}

/** Replays inputs; `ok` if the target accepts all of them */
export async function replayRust(name: string, program: string, files: readonly string[]): Promise<{ ok: boolean; output: string }> {
  return start(program, [...files], { name });
}

async function start(
  program: string,
  args: string[],
  { name, cpuSeconds = Infinity }: { name: string; cpuSeconds?: number },
): Promise<{ ok: boolean; output: string }> {
  const child = spawn(program, args, { env: { ...process.env, FORKD_FUZZ_TARGET: name }, stdio: ["ignore", "pipe", "pipe"] });
  // libFuzzer measures its own time limit with the wall clock. This signal makes it end in order
  const watch = setInterval(() => {
    void cpuSecondsOf(child.pid).then((spent) => spent >= cpuSeconds && child.kill("SIGUSR1"));
  }, LOOK_MS);
  const parts: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes: Buffer) => parts.push(bytes));
  const code = await new Promise((resolve, reject) => child.once("error", reject).once("close", resolve)).finally(() =>
    clearInterval(watch),
  );
  return { ok: code === 0, output: Buffer.concat(parts).toString() };
}

/** CPU time of a process; 0 once it has ended */
async function cpuSecondsOf(pid: number | undefined): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  // user and system time are the 14th and 15th field; the 2nd is a name that may have spaces
  const [user = 0, system = 0] = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 13)
    .map(Number);
  return (user + system) / TICKS_PER_SECOND;
}

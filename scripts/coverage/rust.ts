// Rust coverage: instrumented builds of the agent, the warden and their tests, and LLVM's report.

import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { promisify } from "node:util";
import { BIN, RAW, ROOT, TARGET } from "./places.ts";

import type { FileCoverage } from "./report.ts";

const run = promisify(execFile);
const MAX_OUTPUT = 512 * 1024 * 1024;
const BINARIES = [
  { name: "forkd-agent", define: "-DGUEST" },
  { name: "forkd-warden", define: "-DHOST" },
];
const ENV: NodeJS.ProcessEnv = {
  ...process.env,
  CARGO_TARGET_DIR: TARGET,
  CARGO_PROFILE_RELEASE_LTO: "off",
  // llvm-cov reads names and the coverage map from the unstripped binary
  CARGO_PROFILE_RELEASE_STRIP: "none",
  // Replaces the flags in .cargo/config.toml. Relocatable counters can be in a mapped file.
  RUSTFLAGS: "-C target-feature=+crt-static -C instrument-coverage -C llvm-args=-runtime-counter-relocation",
};

export type Llvm = { cov: string; profdata: string };

/**
 * LLVM tools of the compiler's version, from rustup's llvm-tools or the distribution. Returns a string if one is
 * missing
 */
export async function findLlvm(): Promise<Llvm | string> {
  const { stdout: version } = await run("rustc", ["-vV"]);
  const major = /^LLVM version: (\d+)/m.exec(version)?.[1] ?? "?";
  const host = /^host: (.+)/m.exec(version)?.[1] ?? "";
  const { stdout: sysroot } = await run("rustc", ["--print", "sysroot"]);
  const rustup = join(sysroot.trim(), "lib", "rustlib", host, "bin");
  for (const of of [
    (name: string) => join(rustup, name),
    (name: string) => `${name}-${major}`,
    (name: string) => `/usr/lib/llvm-${major}/bin/${name}`,
    (name: string) => name,
  ]) {
    const tools = { cov: of("llvm-cov"), profdata: of("llvm-profdata") };
    const found = await Promise.all(Object.values(tools).map(async (tool) => versionOf(tool)));
    if (found.every((one) => one === major)) return tools;
  }
  return `coverage: this rustc has LLVM ${major}, whose llvm-cov and llvm-profdata are missing.\nRun: apt-get install llvm-${major}`;
}

/** Builds the binaries into BIN, builds and runs the tests, and returns the objects with coverage maps */
export async function buildAndTest(): Promise<string[]> {
  await mkdir(BIN, { recursive: true });
  const objects: string[] = [];
  const source = join(import.meta.dirname, "profile.c");
  // Part of the name, because cargo does not detect a changed object file.
  const version = createHash("sha256")
    .update(await readFile(source))
    .digest("hex")
    .slice(0, 16);
  for (const { name, define } of BINARIES) {
    const start = join(BIN, `${name}-${version}.o`);
    await run("gcc", ["-O2", "-Wall", "-Wextra", "-Werror", define, "-c", "-o", start, source]);
    await cargo("rustc", "--release", "--locked", "--quiet", "-p", name, "--bin", name, "--", "-C", `link-arg=${start}`);
    const built = join(TARGET, "release", name);
    // Stripped: the initramfs takes guest memory.
    await run("strip", ["-o", join(BIN, name), built]);
    objects.push(built);
  }
  const tests = ["test", "--release", "--locked", "--quiet"];
  const { stdout } = await run("cargo", [...tests, "--no-run", "--message-format=json"], { cwd: ROOT, env: ENV, maxBuffer: MAX_OUTPUT });
  for (const line of stdout.split("\n").filter((text) => text.startsWith("{"))) {
    const { executable } = JSON.parse(line) as { executable?: string | null };
    if (executable) objects.push(executable);
  }
  await cargo(...tests);
  return objects;
}

export async function measureRust(llvm: Llvm, objects: readonly string[]): Promise<FileCoverage[]> {
  const inputs = (await readdir(RAW)).filter((name) => name.endsWith(".profraw")).map((name) => join(RAW, name));
  const list = join(RAW, "inputs");
  await writeFile(list, inputs.join("\n"));
  const profile = join(RAW, "all.profdata");
  // The file of a process killed at its start may be empty.
  await run(llvm.profdata, ["merge", "--sparse", "--failure-mode=all", `--input-files=${list}`, "-o", profile], { maxBuffer: MAX_OUTPUT });
  const [first = "", ...others] = objects;
  const common = [
    first,
    ...others.flatMap((path) => ["-object", path]),
    `-instr-profile=${profile}`,
    "--sources",
    "guest/src",
    "warden/src",
    "wire/src",
  ];
  const ask = async (...args: string[]): Promise<string> =>
    (await run(llvm.cov, ["export", ...args, ...common], { cwd: ROOT, maxBuffer: MAX_OUTPUT })).stdout;
  return readExports(await ask("--format=lcov"), await ask("--format=text", "--skip-functions"));
}

/** [line, column, count, has a count, begins a region, is a gap] */
type Segment = [number, number, number, boolean, boolean, boolean];
type JsonExport = { data: { files: { filename: string; segments: Segment[] }[] }[] };

async function readExports(lcov: string, json: string): Promise<FileCoverage[]> {
  const regions = new Map(
    (JSON.parse(json) as JsonExport).data.flatMap(({ files }) => files.map((file) => [file.filename, file.segments])),
  );
  const files: FileCoverage[] = [];
  for (const record of lcov.split("end_of_record\n")) {
    const name = /^SF:(.+)$/m.exec(record)?.[1];
    if (name === undefined || /\/(tests|scratch)\.rs$/.test(name)) continue;
    const end = testsBegin(await readFile(name, "utf8"));
    const lines = [...record.matchAll(/^DA:(\d+),(\d+)/gm)].map((match) => ({ line: Number(match[1]), covered: match[2] !== "0" }));
    const own = (regions.get(name) ?? []).filter(([line, , , isCounted, isEntry, isGap]) => line < end && isCounted && isEntry && !isGap);
    files.push({
      path: relative(ROOT, name),
      lines: lines.filter(({ line }) => line < end),
      branches: own.map(([, , count]) => count > 0),
    });
  }
  return files;
}

/** First line of the test module in a file */
function testsBegin(text: string): number {
  const at = text.search(/^#\[cfg\(test\)\]\nmod \w+ \{/m);
  return at < 0 ? Infinity : text.slice(0, at).split("\n").length;
}

async function cargo(...args: string[]): Promise<void> {
  const env = { ...ENV, LLVM_PROFILE_FILE: join(RAW, "test-%p%c.profraw") };
  const [code] = (await once(spawn("cargo", args, { cwd: ROOT, env, stdio: "inherit" }), "exit")) as [number | null];
  if (code !== 0) throw new Error(`coverage: cargo ${args[0]} failed`);
}

/** undefined: the program is missing, or too old for `--version`, such as llvm-profdata 14 */
export async function versionOf(tool: string): Promise<string | undefined> {
  try {
    return /LLVM version (\d+)/.exec((await run(tool, ["--version"])).stdout)?.[1];
  } catch (error) {
    const { code } = error as { code?: string | number };
    if (code === "ENOENT" || typeof code === "number") return undefined;
    throw error;
  }
}

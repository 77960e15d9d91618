// The binary of tests/cluster: Kubernetes' control plane and kubectl, built once and kept outside of the repository.

import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { access, mkdir, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const MODULE = resolve(import.meta.dirname, "..", "cluster");
const CACHE = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "forkd-cluster");
const BINARY = "forkd-cluster";
const PROGRESS_MS = 15_000;
/** For all downloads of modules, which `go list` does: without a network it may try for very long */
const LIST_MS = 600_000;
/** Lines of a failed build in its error */
const ERROR_LINES = 10;
/** Kubernetes' own build writes the version into the binary in the same way; kubectl refuses to print one without */
const VERSION = "k8s.io/component-base/version.gitVersion";
const BUILD = ["build", "-v", "-trimpath", "-buildvcs=false"];

/** GOTOOLCHAIN: another Go would be downloaded. CGO_ENABLED: the binary then needs no library of this machine */
const ENVIRONMENT: NodeJS.ProcessEnv = { ...process.env, GOTOOLCHAIN: "local", CGO_ENABLED: "0" };
const PACKAGE = /^[\w.~-]+(\/[\w.~-]+)*$/;

const run = promisify(execFile);

/** Path of the binary; `say` gets the progress of a build. Throws the reason why there is none */
export async function controlPlane(say: (line: string) => void): Promise<string> {
  const folder = join(CACHE, await keyOfModule());
  const binary = join(folder, BINARY);
  if (await exists(binary)) return binary;
  say(`building Kubernetes' control plane with ${await goVersion()}: about 10 minutes of CPU time and 2 GiB of memory, once`);
  await mkdir(folder, { recursive: true });
  const unfinished = `${binary}.${process.pid}`;
  const started = performance.now();
  try {
    await build(unfinished, say);
    await rename(unfinished, binary);
  } finally {
    await rm(unfinished, { force: true });
  }
  say(`Kubernetes' control plane is in ${folder}, after ${secondsSince(started)} s`);
  return binary;
}

async function build(output: string, say: (line: string) => void): Promise<void> {
  const total = (await go(["list", "-deps", "."])).split("\n").length;
  // One build at a time: two would need twice the memory, and the second one then finds Go's cache filled.
  const command = [
    "-o",
    join(CACHE, "lock"),
    "nice",
    "-n",
    "15",
    "go",
    ...BUILD,
    `-ldflags=-s -w -X ${VERSION}=${await kubernetesVersion()}`,
    "-o",
    output,
    ".",
  ];
  const child = spawn("flock", command, { cwd: MODULE, env: ENVIRONMENT, stdio: ["ignore", "ignore", "pipe"] });
  const ended = once(child, "close");
  const others: string[] = [];
  let count = 0;
  const started = performance.now();
  const report = (): void => say(`building Kubernetes' control plane (${secondsSince(started)} s): ${count} of at most ${total} packages`);
  const timer = setInterval(report, PROGRESS_MS);
  try {
    for await (const line of createInterface(child.stderr)) {
      // -v prints one line per package that is compiled.
      if (PACKAGE.test(line)) count++;
      else others.push(line);
    }
    const [code] = (await ended) as [number | null];
    if (code !== 0) throw new Error(`the build of tests/cluster failed: ${others.slice(-ERROR_LINES).join("\n")}`);
  } finally {
    clearInterval(timer);
  }
}

/** Names what the binary is made from, so that another version of anything gets a folder of its own */
async function keyOfModule(): Promise<string> {
  const hash = createHash("sha256");
  for (const name of ["go.mod", "go.sum", "main.go"]) hash.update(await readFile(join(MODULE, name)));
  return hash.update(BUILD.join(" ")).digest("hex").slice(0, 16);
}

/** Such as v1.36.3 */
async function kubernetesVersion(): Promise<string> {
  return /k8s\.io\/kubernetes (v\S+)/.exec(await readFile(join(MODULE, "go.mod"), "utf8"))?.[1] ?? "";
}

async function goVersion(): Promise<string> {
  const wanted = /^go (\d+)\.(\d+)/m.exec(await readFile(join(MODULE, "go.mod"), "utf8"));
  const version = (await go(["env", "GOVERSION"])).trim();
  const found = /^go(\d+)\.(\d+)/.exec(version);
  const isNewEnough = Number(found?.[1]) === Number(wanted?.[1]) && Number(found?.[2]) >= Number(wanted?.[2]);
  if (!isNewEnough) throw new Error(`tests/cluster needs Go ${wanted?.[1]}.${wanted?.[2]}, this machine has ${version}`);
  return version;
}

async function go(args: string[]): Promise<string> {
  try {
    return (await run("go", args, { cwd: MODULE, env: ENVIRONMENT, maxBuffer: 64 * 1024 * 1024, timeout: LIST_MS })).stdout;
  } catch (error) {
    const { code, stderr, killed } = error as { code?: unknown; stderr?: string; killed?: boolean };
    if (code === "ENOENT") throw new Error("there is no Go, which builds Kubernetes' control plane", { cause: error });
    const why = killed ? `it did not end within ${LIST_MS / 1000} s` : lastLines(stderr ?? "");
    throw new Error(`go ${args[0]} failed in tests/cluster: ${why}`, { cause: error });
  }
}

function lastLines(output: string): string {
  return output.trimEnd().split("\n").slice(-ERROR_LINES).join("\n");
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

function secondsSince(started: number): number {
  return Math.round((performance.now() - started) / 1000);
}

// The comparison with containers: runc starting the same Python and numpy on the same root file system.

import { execFile } from "node:child_process";
import { access, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { messageOf } from "@forkd/runtime";

import type { Runtime, Snapshot } from "@forkd/runtime";

const execute = promisify(execFile);
const RUNC_PLACES = ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/bin/runc"];

export type RuncOutcome = { ms: number } | { skipped: string };

/** Time until all have answered, in ms; or why it could not be measured */
export async function measureRunc(
  runtime: Runtime,
  snapshot: Snapshot,
  opts: { n: number; parallelism: number; expression: string; signal: AbortSignal },
): Promise<RuncOutcome> {
  const runc = await firstThere(RUNC_PLACES);
  if (!runc) return { skipped: "runc is not installed (apt-get install runc)" };
  const rootfs = (await runtime.images.get(snapshot.manifest.imageId)).rootfsPath;
  const dir = await mkdtemp(join(runtime.home.staging, "runc-"));
  try {
    await execute("unsquashfs", ["-d", join(dir, "rootfs"), "-no-xattrs", rootfs], { maxBuffer: 64 * 1024 * 1024, signal: opts.signal });
    await writeBundles(runc, dir, opts);
    await start(runc, dir, 0, opts.signal); // the page cache is warm for the VMs too
    await writeBundle(dir, 0);
    const began = performance.now();
    let next = 0;
    const worker = async (): Promise<void> => {
      while (next < opts.n) await start(runc, dir, next++, opts.signal);
    };
    await Promise.all(Array.from({ length: opts.parallelism }, worker));
    return { ms: performance.now() - began };
  } catch (error) {
    if (opts.signal.aborted) throw error;
    return { skipped: `runc cannot run a container here: ${messageOf(error).split("\n").slice(0, 3).join(" ")}` };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

async function writeBundles(runc: string, dir: string, opts: { n: number; expression: string }): Promise<void> {
  await execute(runc, ["spec", ...(process.getuid?.() === 0 ? [] : ["--rootless"]), "--bundle", dir]);
  const spec = JSON.parse(await readFile(join(dir, "config.json"), "utf8")) as {
    process: { terminal: boolean; args: string[] };
    root: { path: string; readonly: boolean };
  };
  spec.process.terminal = false;
  spec.process.args = ["python3", "-c", `import numpy; print(${opts.expression})`];
  spec.root = { path: join(dir, "rootfs"), readonly: true };
  await writeFile(join(dir, "config.json"), JSON.stringify(spec));
  for (let i = 0; i < opts.n; i++) await writeBundle(dir, i);
}

async function writeBundle(dir: string, i: number): Promise<void> {
  const bundle = join(dir, `b${i}`);
  await mkdir(bundle, { recursive: true });
  await writeFile(join(bundle, "config.json"), await readFile(join(dir, "config.json")));
}

async function start(runc: string, dir: string, i: number, signal: AbortSignal): Promise<void> {
  const { stdout } = await execute(
    runc,
    ["--root", join(dir, "state"), "run", "--bundle", join(dir, `b${i}`), `forkd-bench-${process.pid}-${i}`],
    { signal },
  );
  if (!stdout.includes("[")) throw new Error(`the container answered ${JSON.stringify(stdout)}`);
}

async function firstThere(paths: string[]): Promise<string | undefined> {
  for (const path of paths) {
    const there = await access(path).then(
      () => true,
      () => false,
    );
    if (there) return path;
  }
  return undefined;
}

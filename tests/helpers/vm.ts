// One runtime and one warm snapshot per test file, with a check for leftovers at the end.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFile, link, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { buildImage, countLeftovers, ImageStore, importImage, prepareHome, resolveHome, Runtime } from "@forkd/runtime";
import { disksOfZygotes, namesIn, ownChildren, tracesOf, type Traces } from "./host.ts";
import { shareImage, warmSnapshot, type WarmSpec } from "./shared-stores.ts";

import type { Home, RuntimeOptions, Sandbox, Snapshot } from "@forkd/runtime";

const run = promisify(execFile);

export const PYTHON_IMAGE = "python-numpy";
const PYTHON_PACKAGES = ["python3", "python3-numpy"];
const NODE_IMAGE = "test-node";

/** Shared by as many test files as possible: equal warm-ups are built once per run */
const WARM_PYTHON = [
  "import multiprocessing, numpy, os, random, socket, tempfile, time, uuid",
  "warmed = [1, 2]; rng = numpy.random.default_rng(1); inner = [random.Random(1)]",
  // values that Python's library keeps from its first use on
  "uuid.uuid1(); uuid.getnode(); tempfile.mktemp()",
].join("; ");
const WARM_NODE = "const crypto = require('node:crypto'); const warmed = [1, 2]; Math.random()";
/** Snapshot of most test files */
export const PYTHON_WARM: WarmSpec = {
  image: PYTHON_IMAGE,
  memoryMiB: 256,
  diskMiB: undefined,
  env: { FROM_SNAPSHOT: "yes" },
  warmUp: { exec: [], kernels: [{ language: "python", code: WARM_PYTHON }] },
};

/** In MiB */
export const DISK_MIB = 128;
/** The same with a disk */
export const DISK_WARM: WarmSpec = {
  ...PYTHON_WARM,
  diskMiB: DISK_MIB,
  warmUp: {
    exec: [["sh", "-c", "mkdir /data && echo frozen > /data/kept && echo unsynced > /data/late"]],
    kernels: [{ language: "python", code: `${WARM_PYTHON}; kept = 41` }],
  },
};
export const NODE_WARM: WarmSpec = {
  image: NODE_IMAGE,
  memoryMiB: 256,
  warmUp: { kernels: [{ language: "node", code: WARM_NODE }] },
};

export type TestVmOptions = {
  /** settings of the snapshot, if not the default ones */
  spec?: WarmSpec;
  /** another Python warm-up; costs a boot */
  code?: string;
  /** limits of zygotes, if not the default ones */
  zygotes?: RuntimeOptions["zygotes"];
  home?: Home;
};

export class TestVm {
  readonly runtime: Runtime;
  readonly snapshot: Snapshot;
  /** prefix of all tags of this file */
  readonly tag: string;
  readonly #before: Traces;

  constructor(runtime: Runtime, snapshot: Snapshot, before: Traces) {
    this.runtime = runtime;
    this.snapshot = snapshot;
    this.tag = snapshot.manifest.tag;
    this.#before = before;
  }

  get home(): Home {
    return this.runtime.home;
  }

  /** Forks the file's snapshot, or another one */
  async fork(from: string | Snapshot = this.snapshot): Promise<Sandbox> {
    return this.runtime.forkOne(from);
  }

  async forkMany(n: number, from: string | Snapshot = this.snapshot): Promise<Sandbox[]> {
    const outcomes = await this.runtime.fork(from, { n, allOrNothing: true });
    return outcomes.flatMap(({ sandbox }) => (sandbox ? [sandbox] : []));
  }

  /** Ends all sandboxes, removes this file's snapshots, closes the runtime and asserts that nothing is left */
  async close(): Promise<void> {
    const { runtime } = this;
    try {
      await Promise.all(runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
      const own = (await runtime.snapshots.list()).filter(({ manifest }) => manifest.tag.startsWith(this.tag));
      for (const { manifest } of own.toSorted((a, b) => b.manifest.depth - a.manifest.depth)) await runtime.removeSnapshot(manifest.tag);
    } finally {
      await runtime.close();
    }
    await assertNothingLeft(runtime, this.#before);
  }
}

/** Fast when the image exists */
export async function ensurePythonImage(home: Home): Promise<void> {
  await shareImage(home, PYTHON_IMAGE, async (store) => buildImage(store, { name: PYTHON_IMAGE, packages: PYTHON_PACKAGES }));
}

/** Starts a runtime and makes the warm snapshot of a test file */
export async function startVm(name: string, opts: TestVmOptions = {}): Promise<TestVm> {
  const home = await prepareHome(opts.home ?? resolveHome());
  const spec = opts.spec ?? (opts.code === undefined ? PYTHON_WARM : withCode(opts.code));
  if (spec.image === NODE_IMAGE) await ensureNodeImage(home);
  else await ensurePythonImage(home);
  // shown when the file fails: a child that could not be cloned, for example
  const runtime = await Runtime.start({ home, zygotes: opts.zygotes, onWarning: (message) => void process.stderr.write(`${message}\n`) });
  try {
    const before = await tracesOf(home);
    const snapshot = await warmSnapshot(home, uniqueTag(name), spec);
    return new TestVm(runtime, snapshot, before);
  } catch (error) {
    await runtime.close();
    throw error;
  }
}

function withCode(code: string): WarmSpec {
  return { ...PYTHON_WARM, warmUp: { exec: [], kernels: [{ language: "python", code }] } };
}

function uniqueTag(name: string): string {
  return `test-${name}-${randomBytes(4).toString("hex")}`;
}

async function assertNothingLeft(runtime: Runtime, before: Traces): Promise<void> {
  assert.equal(await countLeftovers(runtime.runDir), 0, `left in ${runtime.runDir}: ${(await namesIn(runtime.runDir)).join(", ")}`);
  assert.deepEqual(ownChildren("forkd-warden"), [], "a warden is left");
  assert.deepEqual(await tracesOf(runtime.home), before);
  assert.deepEqual(await disksOfZygotes(runtime.home), [], "disks of zygotes are left");
}

/** Copies a base snapshot to another tag and applies `change` first; memory is the same file */
export async function copySnapshot(
  vm: TestVm,
  suffix: string,
  change: (dir: string, manifest: Record<string, unknown>) => Promise<void>,
): Promise<string> {
  const tag = `${vm.tag}-${suffix}`;
  const id = `sn-${randomBytes(8).toString("hex")}`;
  const dir = join(vm.home.snapshots, id);
  await mkdir(dir, { mode: 0o700 });
  await link(vm.snapshot.memory, join(dir, "memory.ram"));
  await copyFile(vm.snapshot.deviceState, join(dir, "device.state"));
  const manifest = JSON.parse(await readFile(join(vm.snapshot.dir, "manifest.json"), "utf8")) as Record<string, unknown>;
  Object.assign(manifest, { id, tag });
  await change(dir, manifest);
  // `change` may have written a manifest itself, possibly an invalid one
  await writeFile(join(dir, "manifest.json"), JSON.stringify(manifest), { flag: "wx" }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  await writeFile(join(vm.home.snapshots, "tags", tag), id);
  return tag;
}

/** An image with only this Node and its libraries: needs no network, and shows that a guest needs nothing else */
export async function ensureNodeImage(home: Home): Promise<void> {
  await shareImage(home, NODE_IMAGE, importNodeImage);
}

async function importNodeImage(home: Home): Promise<void> {
  if (await new ImageStore(home).find(NODE_IMAGE)) return;
  const dir = await mkdtemp(join(tmpdir(), "forkd-test-node-"));
  try {
    const { stdout } = await run("ldd", [process.execPath]);
    const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1] ?? "");
    for (const path of ["usr/bin", "etc", "tmp", "root", "proc", "sys", "dev", "run", "lib64", "lib/x86_64-linux-gnu"])
      await mkdir(join(dir, "root-fs", path), { recursive: true });
    for (const library of libraries) await copyFile(library, join(dir, "root-fs", library));
    await copyFile(process.execPath, join(dir, "root-fs/usr/bin/node"));
    await writeFile(join(dir, "root-fs/etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n");
    const tar = join(dir, "rootfs.tar");
    await run("tar", ["--owner=0", "--group=0", "--numeric-owner", "-C", join(dir, "root-fs"), "-cf", tar, "."]);
    await importImage(home, tar, { name: NODE_IMAGE });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

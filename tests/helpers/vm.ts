// One runtime and one warm snapshot per test file, and the proof that nothing of them remains.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFile, link, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { buildImage, countLeftovers, ImageStore, importImage, prepareHome, resolveHome, Runtime } from "@forkd/daemon";
import { namesIn, ownChildren, tracesOf, type Traces } from "./host.ts";

import type { Home, Sandbox, Snapshot } from "@forkd/daemon";

const run = promisify(execFile);

export const PYTHON_IMAGE = "python-numpy";
const PYTHON_PACKAGES = ["python3", "python3-numpy"];
export const NODE_IMAGE = "test-node";

export type TestVmOptions = {
  image?: typeof PYTHON_IMAGE | typeof NODE_IMAGE;
  /** warms the kernel */
  code?: string;
  memoryMiB?: number;
  diskMiB?: number;
  /** programs that warm it before that */
  exec?: string[][];
  env?: Record<string, string>;
  home?: Home;
};

export class TestVm {
  readonly runtime: Runtime;
  readonly snapshot: Snapshot;
  /** beginning of all tags of this file */
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

  /** A child of the file's snapshot, or of another one */
  async fork(from: string | Snapshot = this.snapshot): Promise<Sandbox> {
    return this.runtime.forkOne(from);
  }

  async forkMany(n: number, from: string | Snapshot = this.snapshot): Promise<Sandbox[]> {
    const outcomes = await this.runtime.fork(from, { n, allOrNothing: true });
    return outcomes.flatMap(({ sandbox }) => (sandbox ? [sandbox] : []));
  }

  /** Ends all sandboxes, removes all snapshots of this file, closes the runtime and asserts that nothing is left */
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

/** Quick when it is there */
export async function ensurePythonImage(home: Home): Promise<void> {
  await buildImage(home, { name: PYTHON_IMAGE, packages: PYTHON_PACKAGES });
}

/** Starts a runtime and makes the warm snapshot of a test file */
export async function startVm(name: string, opts: TestVmOptions = {}): Promise<TestVm> {
  const home = await prepareHome(opts.home ?? resolveHome());
  const image = opts.image ?? PYTHON_IMAGE;
  if (image === NODE_IMAGE) await ensureNodeImage(home);
  else await ensurePythonImage(home);
  const runtime = await Runtime.start({ home });
  try {
    const before = await tracesOf(home);
    const { snapshot } = await runtime.createSnapshot({
      tag: uniqueTag(name),
      image,
      memoryMiB: opts.memoryMiB ?? 256,
      diskMiB: opts.diskMiB,
      env: opts.env ?? {},
      warmUp: {
        exec: opts.exec ?? [],
        kernels: [
          image === NODE_IMAGE
            ? { language: "node", code: opts.code ?? "1" }
            : { language: "python", code: opts.code ?? "import numpy, random, os, uuid, time" },
        ],
      },
    });
    return new TestVm(runtime, snapshot, before);
  } catch (error) {
    await runtime.close();
    throw error;
  }
}

function uniqueTag(name: string): string {
  return `test-${name}-${randomBytes(4).toString("hex")}`;
}

async function assertNothingLeft(runtime: Runtime, before: Traces): Promise<void> {
  assert.equal(await countLeftovers(runtime.runDir), 0, `left in ${runtime.runDir}: ${(await namesIn(runtime.runDir)).join(", ")}`);
  assert.deepEqual(ownChildren("forkd-warden"), [], "a warden is left");
  assert.deepEqual(await tracesOf(runtime.home), before);
}

/** A copy of a base snapshot under another tag, changed before it can be used; its memory is the same file */
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
  // a change may have written a manifest of its own, even a broken one
  await writeFile(join(dir, "manifest.json"), JSON.stringify(manifest), { flag: "wx" }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  await writeFile(join(vm.home.snapshots, "tags", tag), id);
  return tag;
}

/** An image of nothing but this Node and its libraries: made without network, and proof that a guest needs nothing else */
export async function ensureNodeImage(home: Home): Promise<void> {
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

// Stores shared by the test files of a run. Images are built once in the machine's store, warm snapshots once per run
// in the template store; the store of a test file gets both as hard links. A file that runs without the runner uses the
// machine's store directly and makes its own snapshots.

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { ImageStore, resolveHome, Runtime } from "@forkd/runtime";
import { SnapshotStore } from "@forkd/runtime/snapshot/store";
import { newId } from "@forkd/runtime/util/id";
import { namesIn } from "./host.ts";
import { linkTree } from "./link-tree.ts";

import type { Home, Snapshot } from "@forkd/runtime";

const run = promisify(execFile);
const POLL_MS = 50;

/** Settings of a warm snapshot; files with equal settings share one */
export type WarmSpec = Omit<Parameters<Runtime["createSnapshot"]>[0], "tag" | "id" | "signal" | "progress">;

/** Makes sure that a store has an image. `build` gets the store to build in and must be fast if the image exists */
export async function shareImage(home: Home, name: string, build: (home: Home) => Promise<unknown>): Promise<void> {
  const machine = sharedStore("FORKD_TEST_MACHINE");
  if (machine === undefined) {
    await build(home);
    return;
  }
  // Build even if the name exists: an image of an older format must be rebuilt.
  await whileLocked(`image-${name}`, async () => build(machine));
  const { id } = await new ImageStore(machine).get(name);
  const folder = id.replace("sha256:", "");
  if (!(await namesIn(home.images)).includes(folder)) {
    await mkdir(join(home.images, folder), { mode: 0o700 });
    await linkTree(join(machine.images, folder), join(home.images, folder));
  }
  await new ImageStore(home).tag(name, id);
}

/** Adds a warm snapshot to a store under a tag */
export async function warmSnapshot(home: Home, tag: string, spec: WarmSpec): Promise<Snapshot> {
  const template = sharedStore("FORKD_TEST_TEMPLATE");
  if (template === undefined) return makeSnapshot(home, tag, spec);
  const made = `warm-${createHash("sha256").update(JSON.stringify(spec)).digest("hex").slice(0, 16)}`;
  const id = await whileLocked(made, async () => {
    const known = await readFile(join(template.snapshots, "tags", made), "utf8").catch(() => undefined);
    return known ?? (await makeSnapshot(template, made, spec)).manifest.id;
  });
  return copySnapshot(join(template.snapshots, id), home, tag);
}

async function makeSnapshot(home: Home, tag: string, spec: WarmSpec): Promise<Snapshot> {
  const runtime = await Runtime.start({ home });
  try {
    return (await runtime.createSnapshot({ ...spec, tag })).snapshot;
  } finally {
    await runtime.close();
  }
}

/** Links memory and disk files of a snapshot under another id and tag */
async function copySnapshot(from: string, home: Home, tag: string): Promise<Snapshot> {
  const id = newId("sn");
  const dir = join(home.snapshots, id);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  await mkdir(join(home.snapshots, "tags"), { recursive: true, mode: 0o700 });
  await linkTree(from, dir);
  const files = await namesIn(dir);
  // "unsynced" marks files that may not be on disk yet; no test store outlives a boot of the host.
  const { unsynced: _unsynced, ...manifest } = JSON.parse(await readFile(join(from, "manifest.json"), "utf8")) as Record<string, unknown>;
  // Copy the disk layers: the link count of a layer is the number of snapshots and VMs of the store that use it.
  for (const layer of files.filter((name) => name.startsWith("dk-"))) {
    await rm(join(dir, layer));
    await run("cp", ["--archive", "--reflink=auto", "--sparse=always", join(from, layer), dir]);
  }
  await rm(join(dir, "manifest.json"));
  await writeFile(join(dir, "manifest.json"), JSON.stringify({ ...manifest, id, tag }), { mode: 0o600 });
  await writeFile(join(home.snapshots, "tags", tag), id, { mode: 0o600 });
  return new SnapshotStore(home).get(tag);
}

function sharedStore(variable: "FORKD_TEST_MACHINE" | "FORKD_TEST_TEMPLATE"): Home | undefined {
  const root = process.env[variable];
  return root ? resolveHome({ ...process.env, FORKD_HOME: root, FORKD_RUN: process.env["FORKD_TEST_TEMPLATE_RUN"] }) : undefined;
}

/** Runs `work` under a lock between processes. SQLite releases its lock when a process is killed */
async function whileLocked<T>(name: string, work: () => Promise<T>): Promise<T> {
  const folder = join(process.env["FORKD_TEST_MACHINE"] ?? "", "tests");
  const lock = new DatabaseSync(join(folder, `${name}.lock`));
  try {
    while (!tryLock(lock)) await sleep(POLL_MS);
    return await work();
  } finally {
    lock.close();
  }
}

function tryLock(lock: DatabaseSync): boolean {
  try {
    lock.exec("BEGIN EXCLUSIVE");
    return true;
  } catch (error) {
    if (/locked|busy/i.test(String(error))) return false;
    throw error;
  }
}

// Power cuts at any point while a daemon works with real VMs: the remaining store keeps all promises.

import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import { mkdtemp, readFile, realpath, rm, stat, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { it } from "node:test";
import { Sandbox } from "forkd";
import { SnapshotStore } from "@forkd/runtime/snapshot/store";
import { TestDaemon } from "../helpers/daemon.ts";
import { Disk, isRenameSynced, readRecord, recorderIn } from "../helpers/power-cut.ts";
import { replay, type Promised } from "../helpers/promises.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { DISK_WARM } from "../helpers/vm.ts";

it("acknowledged state survives a power cut", async (t) => {
  const dir = await realpath(await mkdtemp(join(tmpdir(), "forkd-power-cut-")));
  t.after(async () => rm(dir, { recursive: true, force: true }));
  await using daemon = await TestDaemon.make();
  await warmSnapshot(daemon.home, "parent", DISK_WARM);
  const images = await realpath(daemon.home.images);
  const disk = await Disk.of(daemon.home.root);
  const { env, log } = await recorderIn(dir, daemon.home.root);
  Object.assign(daemon.env, env);
  await daemon.up();
  await work(daemon, log, (what) => appendFileSync(log, `${JSON.stringify({ op: "say", what })}\n`));
  await daemon.down();
  for (const name of Object.keys(env)) delete daemon.env[name];
  const entries = await readRecord(log);
  const { cuts, promised } = await replay({ disk, entries, dir, complete: async (root) => symlink(images, join(root, "images")) });
  t.diagnostic(`${entries.length} changes, ${promised} promises, ${cuts} power cuts`);
  assert.ok(promised > 10 && cuts > 100, `${promised} promises, ${cuts} power cuts`);
});

async function work({ home, controller }: TestDaemon, log: string, say: (what: Promised) => void): Promise<void> {
  const store = new SnapshotStore(home);
  const files = async (id: string): Promise<void> => {
    const { memory, deltas, deviceState, layers } = await store.byId(id);
    const sizes: Record<string, number> = {};
    for (const path of [memory, ...deltas, deviceState, ...layers.map((layer) => layer.path)])
      sizes[basename(path)] = (await stat(path)).size;
    say({ what: "files", id, sizes });
  };
  const onDisk = async (tag: string): Promise<string> => {
    const id = await store.idOf(tag);
    const folder = join(home.snapshots, id);
    const isWritten = async (): Promise<boolean> => !(await readFile(join(folder, "manifest.json"), "utf8")).includes("unsynced");
    await until(isWritten);
    // the manifest can be read a moment before its name is on disk
    await until(async () => isRenameSynced(log, folder, "manifest.json"));
    await files(id);
    say({ what: "snapshot", id, tags: [tag] });
    return id;
  };
  const sandbox = await Sandbox.create("parent", { controller });
  await sandbox.branch("branch");
  const branch = await onDisk("branch");
  say({ what: "snapshot", id: branch, tags: ["branch", "renamed"] });
  await controller.updateSnapshot("branch", { tag: "renamed" });
  say({ what: "snapshot", id: branch, tags: ["renamed"] });

  for (let round = 0; round < 2; round++) {
    await sandbox.suspend();
    say({ what: "sandbox", id: sandbox.id, state: "suspended" });
    await files((await sandbox.refresh()).snapshot_id);
    say({ what: "sandbox", id: sandbox.id, state: null });
    if (round === 0) await sandbox.resume();
  }
  await controller.compactSnapshot("renamed", "flat");
  const flat = await onDisk("flat");
  const pack = await Array.fromAsync(controller.readPack("flat"));
  say({ what: "snapshot", id: flat, tags: null });
  await controller.deleteSnapshot("flat");
  await controller.unpack(Buffer.concat(pack), { tag: "back" });
  await files(flat);
  say({ what: "snapshot", id: flat, tags: ["back"] });

  const { token } = await controller.createToken("ci", { scope: "read" });
  say({ what: "token", token, works: true });
  say({ what: "token", token, works: null });
  await controller.deleteToken("ci");
  say({ what: "token", token, works: false });
  await controller.gc();
  say({ what: "sandbox", id: sandbox.id, state: null });
  await sandbox.kill();
  say({ what: "sandbox", id: sandbox.id, state: "gone" });
  say({ what: "snapshot", id: branch, tags: null });
  await controller.deleteSnapshot("renamed");
  say({ what: "snapshot", id: branch, tags: [] });
}

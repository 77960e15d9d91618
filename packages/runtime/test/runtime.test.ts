// The runtime on a fake engine: boot, fork, branch, pool and compaction do not depend on QEMU.

import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fakeHost } from "../../../tests/helpers/fake-engine.ts";
import { patience } from "../../../tests/helpers/patience.ts";
import { prepareHome, resolveHome, type Home } from "../src/home.ts";
import { DEFAULT_CONFIG } from "../src/image/manifest.ts";
import { ImageStore } from "../src/image/store.ts";
import { Runtime } from "../src/runtime.ts";
import type { Sandbox } from "../src/sandbox/sandbox.ts";

const PAGE = 4096;

describe("a runtime with another engine", { timeout: 4 * patience() }, () => {
  let dir: string;
  let home: Home;
  let runtime: Runtime;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), "forkd-runtime-"));
    home = await prepareHome(resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") }));
    const rootfsTmpPath = join(home.staging, "rootfs");
    await writeFile(rootfsTmpPath, "a root file system");
    const source = { kind: "import", file: "x.tar", format: "rootfs" } as const;
    await new ImageStore(home).add({ rootfsTmpPath, name: "img", config: DEFAULT_CONFIG, source });
    runtime = await Runtime.start({ home, host: fakeHost() });
    const { snapshot } = await runtime.createSnapshot({
      tag: "base",
      image: "img",
      memoryMiB: 64,
      warmUp: { exec: [["poke", "0", "aa"]] },
    });
    assert.equal(snapshot.manifest.shape.engine, "fake");
  });

  after(async () => {
    await runtime.close();
    await rm(dir, { recursive: true });
  });

  test("forks a snapshot: each child has its memory, and changes only its own", async () => {
    const children = await runtime.fork("base", { n: 2 });
    const [one, two] = children.map(({ sandbox }) => sandbox);
    assert.ok(one && two);
    assert.equal(await peek(one, 0), "aa");
    await poke(one, 0, "bb");
    assert.deepEqual([await peek(one, 0), await peek(two, 0)], ["bb", "aa"]);
    await Promise.all([one.kill(), two.kill()]);
  });

  test("branches a running sandbox, and forks the branch of a branch", async () => {
    const source = await runtime.forkOne("base");
    await poke(source, PAGE, "01");
    const { changedPages } = await runtime.branch(source, "first");
    assert.equal(changedPages, 1);
    await poke(source, PAGE, "02");
    const child = await runtime.forkOne("first");
    assert.deepEqual([await peek(child, 0), await peek(child, PAGE)], ["aa", "01"]);
    await poke(child, 2 * PAGE, "03");
    const { snapshot } = await runtime.branch(child, "second");
    const grandchild = await runtime.forkOne("second");
    assert.deepEqual([await peek(grandchild, PAGE), await peek(grandchild, 2 * PAGE)], ["01", "03"]);
    assert.equal(await peek(source, PAGE), "02");

    const compact = await runtime.compact(snapshot, { tag: "alone" });
    assert.equal(compact.manifest.memory.kind, "base");
    const copy = await runtime.forkOne("alone");
    assert.deepEqual([await peek(copy, 0), await peek(copy, PAGE), await peek(copy, 2 * PAGE)], ["aa", "01", "03"]);
    for (const sandbox of [source, child, grandchild, copy]) await sandbox.kill();
  });

  test("takes a child from the pool", async () => {
    const snapshot = await runtime.snapshots.get("base");
    await runtime.pool.resize(snapshot, 1);
    const child = await runtime.forkOne("base");
    assert.equal(await peek(child, 0), "aa");
    await child.kill();
    await runtime.pool.resize(snapshot, 0);
  });

  test("refuses a snapshot that another engine made", async () => {
    const base = await runtime.snapshots.get("base");
    const foreign = { ...base, manifest: { ...base.manifest, shape: { ...base.manifest.shape, engine: "other" } } };
    await assert.rejects(runtime.fork(foreign), { code: "SNAPSHOT_INCOMPATIBLE", message: /the engine other, and this host uses fake/ });
  });

  test("leaves no folder of a sandbox that has ended", async () => {
    const child = await runtime.forkOne("base");
    await child.kill();
    assert.deepEqual(
      (await readdir(runtime.runDir)).filter((name) => name.startsWith("sb-")),
      [],
    );
  });
});

async function poke(sandbox: Sandbox, at: number, hex: string): Promise<void> {
  const { code } = await sandbox.exec(["poke", String(at), hex]);
  assert.equal(code, 0);
}

async function peek(sandbox: Sandbox, at: number): Promise<string> {
  return (await sandbox.exec(["peek", String(at), "1"])).stdout.toString();
}

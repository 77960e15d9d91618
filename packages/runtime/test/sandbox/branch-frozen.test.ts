// Branches from a frozen copy on a fake engine that acts as if it had KVM: what is stored, and what happens when a step fails.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { fakeHost, type FakeFreezes } from "../../../../tests/helpers/fake-engine.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { ForkdError } from "../../src/errors.ts";
import { prepareHome, resolveHome } from "../../src/home.ts";
import { DEFAULT_CONFIG } from "../../src/image/manifest.ts";
import { ImageStore } from "../../src/image/store.ts";
import { Runtime } from "../../src/runtime.ts";
import { canFreeze } from "../../src/sandbox/branch-frozen.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";

const PAGE = 4096;

describe("a branch from a frozen copy", { timeout: 4 * patience() }, () => {
  const freezes: FakeFreezes = { fails: null, prepared: 0, alive: new Set() };
  const warnings: string[] = [];
  let dir: string;
  let runtime: Runtime;
  let source: Sandbox;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), "forkd-frozen-"));
    const home = await prepareHome(resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") }));
    const rootfsTmpPath = join(home.staging, "rootfs");
    await writeFile(rootfsTmpPath, "a root file system");
    const from = { kind: "import", file: "x.tar", format: "rootfs" } as const;
    await new ImageStore(home).add({ rootfsTmpPath, name: "img", config: DEFAULT_CONFIG, source: from });
    runtime = await Runtime.start({ home, host: fakeHost(freezes), onWarning: (message) => void warnings.push(message) });
    await runtime.createSnapshot({ tag: "base", image: "img", memoryMiB: 64, warmUp: { exec: [["poke", "0", "aa"]] } });
  });

  after(async () => {
    await runtime.close();
    await rm(dir, { recursive: true });
  });

  beforeEach(async () => {
    Object.assign(freezes, { fails: null, prepared: 0 });
    warnings.length = 0;
    source = await runtime.forkOne("base");
    await poke(source, PAGE, "01");
  });

  afterEach(async () => {
    assert.equal(freezes.alive.size, 0, "a copy is left");
    await source.kill();
  });

  async function assertStored(tag: string, expected: readonly string[]): Promise<void> {
    const child = await runtime.forkOne(tag);
    const found: string[] = [];
    for (const page of expected.keys()) found.push(await peek(child, page * PAGE));
    assert.deepEqual(found, expected);
    await child.kill();
  }

  test("has the memory of the pause, and the source runs on", async () => {
    const { takenFrom, changedPages, recopiedPages } = await runtime.branch(source, "first");
    assert.deepEqual([takenFrom, changedPages, recopiedPages], ["frozen", 1, 0]);
    await poke(source, PAGE, "02");
    await assertStored("first", ["aa", "01", "00"]);
    assert.equal(await peek(source, PAGE), "02");
    assert.deepEqual(warnings, []);
  });

  test("stores only what changed since the previous one", async () => {
    for (let page = 2; page < 40; page++) await poke(source, page * PAGE, "05");
    const first = await runtime.branch(source, "many");
    await poke(source, 2 * PAGE, "03");
    const second = await runtime.branch(source, "few");
    assert.deepEqual([first.takenFrom, second.takenFrom], ["frozen", "frozen"]);
    assert.deepEqual([first.changedPages, second.changedPages], [39, 39]);
    assert.ok(second.deltaBytes < first.deltaBytes / 4, `${second.deltaBytes} bytes after ${first.deltaBytes}`);
    await assertStored("few", ["aa", "01", "03", "05"]);
  });

  for (const at of ["prepare", "freeze", "capture"] as const)
    test(`is taken from the source itself when the step ${at} fails, and not tried again`, async () => {
      freezes.fails = { at, code: "EPERM" };
      const { takenFrom } = await runtime.branch(source, `after-${at}`);
      assert.equal(takenFrom, "source");
      await assertStored(`after-${at}`, ["aa", "01"]);
      assert.match(warnings.join("\n"), new RegExp(`^The VMM of sandbox ${source.id} is not copied for a branch: `));
      assert.notEqual(source.forkObstacle, null);
      freezes.fails = null;
      const again = await runtime.branch(source, `again-${at}`);
      assert.deepEqual([again.takenFrom, freezes.prepared], ["source", 1]);
    });

  test("is tried again after a failure that may pass", async () => {
    freezes.fails = { at: "freeze", code: "EAGAIN" };
    assert.equal((await runtime.branch(source, "busy")).takenFrom, "source");
    freezes.fails = null;
    assert.equal((await runtime.branch(source, "idle")).takenFrom, "frozen");
  });

  test("fails if it was acknowledged before its memory could not be stored, and the source runs on", async () => {
    freezes.fails = { at: "capture", code: "ESRCH" };
    let isAcknowledged = false;
    const branch = runtime.branch(source, { tag: "early", onResumed: () => void (isAcknowledged = true) });
    await assert.rejects(branch, (error) => error instanceof ForkdError);
    assert.ok(isAcknowledged);
    await assert.rejects(runtime.snapshots.get("early"), { code: "NOT_FOUND" });
    assert.equal(await peek(source, PAGE), "01");
    assert.equal((await runtime.branch(source, "late")).takenFrom, "source");
  });

  test("is not tried where it is of no use, or not known to work", () => {
    const engine = { freezeObstacle: null, prepareFreeze: async () => undefined, freeze: async () => assert.fail() };
    const of = (shape: object): object => ({ snapshot: { manifest: { shape: { ...source.snapshot.manifest.shape, ...shape } } } });
    const base = { vm: source.vm, isLimited: false, forkObstacle: null, ...of({}) };
    const plain = (more: object): Sandbox => ({ ...base, ...more }) as unknown as Sandbox;
    assert.ok(canFreeze(engine, plain({}), {}));
    assert.ok(!canFreeze({ ...engine, freezeObstacle: "a page differed" }, plain({}), {}));
    for (const opts of [{ hold: true }, { stayPaused: true }]) assert.ok(!canFreeze(engine, plain({}), opts));
    for (const more of [{ isLimited: true }, { forkObstacle: "no" }, of({ hugepages: true }), { vm: { isFreezable: false } }])
      assert.ok(!canFreeze(engine, plain(more), {}));
  });
});

async function poke(sandbox: Sandbox, at: number, hex: string): Promise<void> {
  const { code } = await sandbox.exec(["poke", String(at), hex]);
  assert.equal(code, 0);
}

async function peek(sandbox: Sandbox, at: number): Promise<string> {
  return (await sandbox.exec(["peek", String(at), "1"])).stdout.toString();
}

// Branches from a frozen copy, with Linux in the guest: as with KVM, where only the accelerator differs, but under emulation,
// because some hosts have no KVM that runs Linux.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { sh, value } from "../helpers/guest.ts";
import { until } from "../helpers/until.ts";
import { DISK_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

/** Writes 16 MiB all the time, and compares with the hashes of what it wrote */
const WRITER = `
import hashlib, os
rounds = wrong = 0
while True:
    blocks = [bytearray(os.urandom(1 << 20)) for _ in range(16)]
    known = [hashlib.sha1(block).hexdigest() for block in blocks]
    wrong += [hashlib.sha1(block).hexdigest() for block in blocks] != known
    rounds += 1
    with open("/tmp/rounds.new", "w") as file: file.write(f"{rounds} {wrong}")
    os.rename("/tmp/rounds.new", "/tmp/rounds")
`;

describe("a branch from a frozen copy", () => {
  let vm: TestVm;
  let obstacle: string | null;

  before(async () => {
    vm = await startVm("branch-frozen", { spec: DISK_WARM });
    const { engine } = vm.runtime;
    obstacle = engine.cloneObstacle;
    const restore = engine.restore.bind(engine);
    engine.restore = async (spec) => restore({ ...spec, clonable: undefined, freezable: true });
    Object.defineProperty(engine, "freezeObstacle", { value: null });
  });
  after(async () => vm.close());

  async function rounds(one: Sandbox): Promise<[number, number]> {
    const [count, wrong] = (await sh(one, "cat /tmp/rounds 2>/dev/null || echo 0 0")).split(" ").map(Number);
    return [count ?? 0, wrong ?? -1];
  }

  async function assertWrites(one: Sandbox): Promise<void> {
    const [before] = await rounds(one);
    await until(async () => (await rounds(one))[0] > before);
    assert.equal((await rounds(one))[1], 0, "what it reads is not what it wrote");
  }

  it("while the guest writes fast: source and children continue, with the memory and the disk of the branch", async (t) => {
    if (obstacle !== null) return t.skip(obstacle);
    let source = await vm.runtime.forkOne(vm.snapshot, { restored: true });
    await source.start(["python3", "-c", WRITER]);
    await assertWrites(source);
    for (let level = 1; level <= 3; level++) {
      await value(source, `level = ${level}`);
      await sh(source, `echo ${level} > /data/level; head -c 300000 /dev/urandom > /data/own; sync`);
      const sum = await sh(source, "sha1sum < /data/own");
      const { snapshot, takenFrom, recopiedPages } = await vm.runtime.branch(source, `${vm.tag}-level-${level}`);
      assert.deepEqual([takenFrom, recopiedPages], ["frozen", 0], source.forkObstacle ?? "");
      await value(source, "level = 100");
      await sh(source, "echo 100 > /data/level; sync");
      const child = await vm.runtime.forkOne(snapshot, { restored: true });
      assert.equal(await value(child, "level"), level);
      assert.equal(await sh(child, "cat /data/level; sha1sum < /data/own"), `${level}\n${sum}`);
      for (const one of [source, child]) await assertWrites(one);
      assert.equal(await value(source, "level"), 100);
      assert.deepEqual(frozenCopies(), [], "a copy is left");
      // the second branch is of the same source, the third of its child
      if (level === 2) [source] = [child, await source.kill()];
      else await child.kill();
    }
    await source.kill();
  });

  it("is taken from the source if its copy ends before it is stored", async (t) => {
    if (obstacle !== null) return t.skip(obstacle);
    const { engine } = vm.runtime;
    const freeze = engine.freeze.bind(engine);
    const source = await vm.runtime.forkOne(vm.snapshot, { restored: true });
    await value(source, "kept = 7");
    engine.freeze = async (of) => {
      const copy = await freeze(of);
      await copy.end();
      return copy;
    };
    try {
      const { snapshot, takenFrom } = await vm.runtime.branch(source, `${vm.tag}-ended`);
      assert.equal(takenFrom, "source");
      assert.equal(await value(await vm.runtime.forkOne(snapshot, { restored: true }), "kept"), 7);
      assert.equal(await value(source, "kept"), 7);
    } finally {
      engine.freeze = freeze;
    }
    await Promise.all(vm.runtime.sandboxes.map(async (one) => one.kill()));
  });
});

/** Processes of this test that are frozen copies */
function frozenCopies(): string[] {
  const isCopy = (pid: string): boolean => {
    try {
      return readFileSync(`/proc/${pid}/comm`, "utf8") === "forkd-frozen\n" && ancestors(pid).includes(String(process.pid));
    } catch {
      return false; // it has ended
    }
  };
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name) && isCopy(name));
}

function ancestors(pid: string): string[] {
  const parent = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "0";
  return parent === "0" ? [] : [parent, ...ancestors(parent)];
}

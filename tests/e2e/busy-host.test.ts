// Restores, branches and boots beside programs that take all of the host's CPU time: each VM answers, and none ends.
// Runs in make test-all only: it repeats what branch.test.ts and fork-isolation.test.ts test.
// Runs alone: its programs would slow down every other file.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { after, before, describe, it, type TestContext } from "node:test";
import { rounds } from "../helpers/all.ts";
import { value } from "../helpers/guest.ts";
import { startVm, PYTHON_IMAGE, type TestVm } from "../helpers/vm.ts";

import type { Sandbox, Snapshot } from "@forkd/runtime";

const MIB = 1024 * 1024;
/** `BUSY_ROUNDS=300 make test-e2e FILE=busy-host` */
const ROUNDS = Number(process.env["BUSY_ROUNDS"] ?? rounds(2, 5));
const HOGS = Number(process.env["BUSY_HOGS"] ?? 4 * availableParallelism());
/** A boot takes as long as ten other rounds */
const BOOT_EVERY = 10;
/** Ends a program that the test did not end */
const HOG_SECONDS = 3600;

class Hogs {
  readonly #children = Array.from({ length: HOGS }, () => spawn("timeout", [String(HOG_SECONDS), "sh", "-c", "while :; do :; done"]));

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children) child.kill("SIGTERM");
    await Promise.all(this.#children.map(async (child) => child.exitCode ?? child.signalCode ?? once(child, "exit")));
  }
}

/** A program that returns what it is fed, without an end */
async function stream(source: Sandbox): Promise<{ flows: Promise<void> }> {
  const cat = await source.start(["cat"], { stdin: "open" });
  const flows = Promise.withResolvers<void>();
  let bytes = 0;
  const ended = cat.finish((_channel, piece) => {
    if ((bytes += piece.length) > MIB) flows.resolve();
  });
  // both end with the sandbox
  ended.catch(flows.reject);
  void (async () => {
    for (const piece = randomBytes(MIB); ;) await cat.write(piece);
  })().catch(() => undefined);
  return { flows: flows.promise };
}

async function assertWorks(sandbox: Sandbox): Promise<void> {
  assert.equal(await value(sandbox, "6 * 7"), 42);
}

describe(`${ROUNDS} rounds beside ${HOGS} programs that do not wait`, () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("busy");
  });
  after(async () => vm?.close());

  async function restore(from: Snapshot): Promise<void> {
    await using child = await vm.runtime.forkOne(from, { restored: true });
    await assertWorks(child);
  }

  async function branch(round: number): Promise<void> {
    await using source = await vm.fork();
    const { flows } = await stream(source);
    await flows;
    const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-${round}`);
    try {
      await restore(snapshot);
      await assertWorks(source);
    } finally {
      await vm.runtime.removeSnapshot(snapshot.manifest.tag);
    }
  }

  async function boot(round: number): Promise<void> {
    const tag = `${vm.tag}-boot-${round}`;
    const { snapshot } = await vm.runtime.createSnapshot({ tag, image: PYTHON_IMAGE, memoryMiB: 256, warmUp: { kernels: "auto" } });
    await restore(snapshot);
    await vm.runtime.removeSnapshot(tag);
  }

  it("lose no VM", async (t: TestContext) => {
    await using cleanup = new AsyncDisposableStack();
    cleanup.use(new Hogs());
    const failures: string[] = [];
    const attempt = async (what: string, work: Promise<void>): Promise<void> => {
      await work.catch((error: unknown) => {
        failures.push(`${what}: ${String(error)}`);
        t.diagnostic(failures.at(-1)!);
      });
    };
    for (let round = 1; round <= ROUNDS; round++) {
      await Promise.all([
        attempt(`restore ${round}`, restore(vm.snapshot)),
        attempt(`branch ${round}`, branch(round)),
        ...(round % BOOT_EVERY === 1 ? [attempt(`boot ${round}`, boot(round))] : []),
      ]);
      if (round % BOOT_EVERY === 0) t.diagnostic(`${round} rounds, ${failures.length} failures`);
    }
    assert.deepEqual(failures, []);
  });
});

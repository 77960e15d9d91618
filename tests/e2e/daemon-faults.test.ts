// Fifty rounds under load, each with a SIGKILL of the daemon or a VMM: no acknowledged change is lost, nothing is left
// over, and every request ends with an answer or a connection error.

import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionError, ForkdError, TimeoutError } from "forkd";
import { rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { namesIn, vmOf } from "../helpers/host.ts";
import { Random } from "../helpers/random.ts";
import { until } from "../helpers/until.ts";

/** `FAULT_ROUNDS=200 make test-e2e FILE=daemon-faults` */
const ROUNDS = Number(process.env["FAULT_ROUNDS"] ?? rounds(12, 25));
const WORKERS = 4;
const MAX_SANDBOXES = 10;
const MAX_SNAPSHOTS = 5;

/** Valid errors while daemon and VMMs are killed; any other error is a defect */
const EXPECTED = new Set([
  "VMM_EXITED",
  "SANDBOX_LOST",
  "AGENT_LOST",
  "NOT_FOUND",
  "BUSY",
  "BRANCH_FAILED",
  "FORK_FAILED",
  "IN_USE",
  "EXISTS",
  "KERNEL_DIED",
  "SNAPSHOT_NOT_READY",
  "SANDBOX_PAUSED",
]);

/** Acknowledged state. A value is unknown while a request that changes it is unanswered */
type Known = { value: number | "unknown"; ending: boolean };

class Load {
  readonly sandboxes = new Map<string, Known>();
  readonly snapshots = new Map<string, number | "unknown">();
  /** tags of snapshots that were acknowledged before they were complete */
  readonly told = new Set<string>();
  readonly renaming = new Map<string, { from: string; value: number | "unknown" }>();
  readonly counts = { answered: 0, refused: 0, cut: 0 };
  readonly #daemon: TestDaemon;
  readonly #random: Random;
  /** number of pending requests that change the value, by sandbox */
  readonly #assigning = new Map<string, number>();
  #stopped = false;
  #serial = 0;

  constructor(daemon: TestDaemon, random: Random) {
    this.#daemon = daemon;
    this.#random = random;
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  stop(): void {
    this.#stopped = true;
  }

  async work(): Promise<void> {
    while (!this.#stopped) {
      try {
        await this.#step();
        this.counts.answered++;
      } catch (error) {
        if (error instanceof ConnectionError) {
          this.counts.cut++;
          await sleep(20);
        } else if (error instanceof ForkdError && !(error instanceof TimeoutError) && EXPECTED.has(error.code)) {
          this.counts.refused++;
        } else {
          throw error;
        }
      }
    }
  }

  async #step(): Promise<void> {
    const { controller } = this.#daemon;
    const id = this.#random.pick([...this.sandboxes].filter(([, known]) => !known.ending).map(([key]) => key));
    const dice = this.#random.below(100);
    if (id === undefined || (dice < 20 && this.sandboxes.size < MAX_SANDBOXES)) return this.#spawn("python", 0);
    if (dice < 50) return this.#assign(id);
    if (dice < 56) return void (await controller.execCommand(id, ["true"]));
    if (dice < 64) return this.#branch(id);
    if (dice < 68) return this.#branchWithoutWaiting(id);
    if (dice < 73) return this.#spawnFromBranch();
    if (dice < 78) return this.#forkRunning(id);
    if (dice < 82) return this.#pauseAndResume(id);
    if (dice < 86) return this.#renameSnapshot();
    if (dice < 92) return this.#forget(id);
    if (dice < 96) return this.#forgetSnapshot();
    return void (await controller.listSandboxes());
  }

  /** Children have the value of the source, unless a request was changing it */
  async #forkRunning(id: string): Promise<void> {
    if (this.sandboxes.size >= MAX_SANDBOXES) return;
    const before = this.sandboxes.get(id)?.value ?? "unknown";
    const { sandboxes } = await this.#daemon.controller.forkSandbox(id, { n: 1 });
    const value = this.sandboxes.get(id)?.value === before ? before : "unknown";
    for (const child of sandboxes) this.sandboxes.set(child.id, { value, ending: false });
  }

  async #branchWithoutWaiting(id: string): Promise<void> {
    if (this.snapshots.size >= MAX_SNAPSHOTS) return;
    const tag = `w${randomInt(2 ** 40)}`;
    const info = await this.#daemon.controller.branchSandbox(id, { tag, wait: false });
    assert.equal(info.status, "writing");
    this.told.add(tag);
  }

  async #pauseAndResume(id: string): Promise<void> {
    const { controller } = this.#daemon;
    const known = this.sandboxes.get(id);
    if (!known || known.ending) return;
    await controller.pauseSandbox(id);
    await controller.resumeSandbox(id);
  }

  async #renameSnapshot(): Promise<void> {
    const tag = this.#random.pick([...this.snapshots.keys()]);
    if (tag === undefined) return;
    const value = this.snapshots.get(tag) ?? "unknown";
    const to = `r${randomInt(2 ** 40)}`;
    this.snapshots.delete(tag);
    // until the answer, the snapshot may have either name
    this.renaming.set(to, { from: tag, value });
    await this.#daemon.controller.updateSnapshot(tag, { tag: to });
    this.renaming.delete(to);
    this.snapshots.set(to, value);
  }

  async #spawn(tag: string, value: number | "unknown"): Promise<void> {
    const sandboxes = await this.#daemon.controller.spawnSandboxes(tag);
    for (const { id } of sandboxes) this.sandboxes.set(id, { value, ending: false });
  }

  async #assign(id: string): Promise<void> {
    const known = this.sandboxes.get(id);
    if (!known || known.ending) return;
    const value = ++this.#serial;
    known.value = "unknown";
    // requests of two workers can reach the daemon in either order
    const before = this.#assigning.get(id) ?? 0;
    this.#assigning.set(id, before + 1);
    try {
      const result = await this.#daemon.controller.evalCode(id, `number = ${value}`);
      assert.equal(result.error, null);
      // another worker may have started a change meanwhile, or a snapshot may have been taken in between
      if (before === 0 && known.value === "unknown" && this.#serial === value) known.value = value;
    } finally {
      this.#assigning.set(id, (this.#assigning.get(id) ?? 1) - 1);
    }
  }

  async #branch(id: string): Promise<void> {
    if (this.snapshots.size >= MAX_SNAPSHOTS) return;
    const tag = `b${randomInt(2 ** 40)}`;
    const before = this.sandboxes.get(id)?.value ?? "unknown";
    const info = await this.#daemon.controller.branchSandbox(id, { tag });
    assert.equal(info.status, "ready");
    const unchanged = this.sandboxes.get(id)?.value === before;
    this.snapshots.set(tag, unchanged ? before : "unknown");
  }

  async #spawnFromBranch(): Promise<void> {
    const tag = this.#random.pick([...this.snapshots.keys()]);
    if (tag === undefined || this.sandboxes.size >= MAX_SANDBOXES) return;
    const value = this.snapshots.get(tag) ?? "unknown";
    await this.#spawn(tag, value);
  }

  async #forget(id: string): Promise<void> {
    const known = this.sandboxes.get(id);
    if (!known || known.ending) return;
    known.ending = true;
    await this.#daemon.controller.killSandbox(id);
    this.sandboxes.delete(id);
  }

  async #forgetSnapshot(): Promise<void> {
    const tag = this.#random.pick([...this.snapshots.keys()]);
    if (tag === undefined) return;
    this.snapshots.delete(tag);
    await this.#daemon.controller.deleteSnapshot(tag, { force: true });
  }
}

describe("a fault run", () => {
  let daemon: TestDaemon;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it(`of ${ROUNDS} rounds loses no acknowledged object`, async (context) => {
    const seed = Number(process.env["FORKD_TEST_SEED"] ?? randomInt(2 ** 31));
    context.diagnostic(`seed ${seed} (FORKD_TEST_SEED repeats it)`);
    const random = new Random(seed);
    const killed = new Set<string>();
    const totals = { answered: 0, refused: 0, cut: 0, daemons: 0, vmms: 0 };
    const began = performance.now();
    const known = { sandboxes: new Map<string, Known>(), snapshots: new Map<string, number | "unknown">() };
    for (let round = 0; round < ROUNDS; round++) {
      const load = new Load(daemon, random);
      for (const [id, entry] of known.sandboxes) load.sandboxes.set(id, entry);
      for (const [tag, value] of known.snapshots) load.snapshots.set(tag, value);
      const workers = Promise.all(Array.from({ length: WORKERS }, async () => load.work()));
      workers.catch(() => load.stop()); // a failed worker ends the round; awaited below
      // Kill only under load, at a random moment.
      await until(() => load.stopped || load.counts.answered + load.counts.refused >= WORKERS);
      await sleep(random.below(600));
      // Each kind at least once.
      if (round === 0 || (round > 1 && random.below(100) < 60)) {
        await daemon.kill9();
        totals.daemons++;
        await sleep(random.below(100));
        await daemon.up();
      } else {
        await until(() => load.stopped || [...load.sandboxes.keys()].some((id) => vmmOf(id) !== undefined));
        killVmmOf(random.pick([...load.sandboxes.keys()].filter((id) => vmmOf(id) !== undefined)));
      }
      await sleep(100);
      load.stop();
      await workers;
      for (const key of ["answered", "refused", "cut"] as const) totals[key] += load.counts[key];
      await verify(load, round);
      known.sandboxes = load.sandboxes;
      known.snapshots = load.snapshots;
    }
    context.diagnostic(`${ROUNDS} rounds in ${Math.round((performance.now() - began) / 1000)} s: ${JSON.stringify(totals)}`);
    assert.ok(totals.daemons > 0 && totals.vmms > 0 && totals.cut > 0, "the run killed too few processes");

    // Search by command line: a pid from an earlier list may have been reused.
    function vmmOf(id: string): number | undefined {
      return daemon.vmms().find((candidate) => vmOf(candidate) === id);
    }

    function killVmmOf(id: string | undefined): void {
      const pid = id === undefined ? undefined : vmmOf(id);
      if (id === undefined || pid === undefined) return;
      killed.add(id);
      totals.vmms++;
      process.kill(pid, "SIGKILL");
    }

    async function verify(load: Load, number: number): Promise<void> {
      const listed = new Map(
        (await daemon.controller.listSandboxes({ state: ["running", "paused", "ended", "lost"] })).map((info) => [info.id, info]),
      );
      for (const [id, entry] of load.sandboxes) {
        const info = listed.get(id);
        // a removal without an answer may have happened
        if (entry.ending && (!info || info.state !== "running")) {
          load.sandboxes.delete(id);
          continue;
        }
        assert.ok(info, `round ${number}: sandbox ${id} was acknowledged and is not there`);
        if (info.state === "paused") await daemon.controller.resumeSandbox(id);
        if (killed.has(id)) {
          if (info.state === "running") continue;
          assert.match(info.state, /ended|lost/);
          await daemon.controller.killSandbox(id);
          load.sandboxes.delete(id);
          continue;
        }
        if (info.state !== "paused") assert.equal(info.state, "running", `round ${number}: sandbox ${id} is ${info.state}: ${info.reason}`);
        entry.ending = false;
        const { value } = await daemon.controller.evalCode(id, "globals().get('number', 0)");
        if (entry.value !== "unknown") assert.equal(value, entry.value, `round ${number}: sandbox ${id} has forgotten its value`);
        entry.value = value as number;
      }
      for (const tag of load.told) {
        await until(async () => (await daemon.controller.getSnapshot(tag)).status !== "writing");
        const { status } = await daemon.controller.getSnapshot(tag);
        assert.match(status, /ready|failed/, `round ${number}: snapshot ${tag} was acknowledged and is ${status}`);
        await daemon.controller.deleteSnapshot(tag, { force: true });
      }
      const tags = new Map((await daemon.controller.listSnapshots()).map((info) => [info.tag, info]));
      for (const [to, { from, value }] of load.renaming) {
        const found = [from, to].filter((tag) => tags.has(tag));
        assert.equal(found.length, 1, `round ${number}: of the names ${from} and ${to} there are ${found.length}`);
        load.snapshots.set(found[0] ?? "", value);
      }
      for (const [tag, value] of load.snapshots) {
        assert.equal(tags.get(tag)?.status, "ready", `round ${number}: snapshot ${tag} was acknowledged and is not there`);
        if (number % 10 !== 9) continue;
        const [child] = await daemon.controller.spawnSandboxes(tag);
        assert.ok(child);
        const found = (await daemon.controller.evalCode(child.id, "globals().get('number', 0)")).value;
        if (value !== "unknown") assert.equal(found, value, `round ${number}: snapshot ${tag} has another value`);
        await daemon.controller.killSandbox(child.id);
      }
    }
  });

  it("leaves no process, no folder, no image and no incomplete file", async () => {
    await daemon.controller.killSandboxes({ all: true });
    // ephemeral snapshots are removed with their last sandbox
    const named = (await daemon.controller.listSnapshots()).filter(({ ephemeral }) => !ephemeral);
    for (const { tag } of named) await daemon.controller.deleteSnapshot(tag, { force: true });
    await daemon.controller.gc();
    assert.deepEqual(await daemon.controller.listSandboxes({ state: ["running", "paused", "ended", "lost"] }), []);
    assert.deepEqual(await daemon.controller.listSnapshots(), []);
    assert.deepEqual(daemon.vmms(), []);
    assert.deepEqual(
      (await namesIn(daemon.home.snapshots)).filter((name) => name !== "tags"),
      [],
    );
    assert.deepEqual(await namesIn(`${daemon.home.snapshots}/tags`), []);
    assert.deepEqual(await namesIn(`${daemon.home.flat}/daemon`), []);
    assert.deepEqual(await namesIn(daemon.home.staging), []);
  });
});

// Guests whose root user replaces the agent: they can break only their own sandbox.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Controller, ForkdError } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { residentMemory } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

const MIB = 1024 * 1024;
/** Allowed memory growth of the daemon during the attack */
const MOST_MORE_MIB = 96;
const HOSTILE = join(import.meta.dirname, "..", "helpers", "hostile.py");
/** Valid errors for clients of a sandbox with a hostile agent */
const TOLD = ["AGENT_LOST", "AGENT_TIMEOUT", "AGENT_PROTOCOL", "BAD_REQUEST", "FILE_FAILED", "EXEC_FAILED", "KERNEL_DIED", "no answer"];
/** A file that ends early closes the connection: HTTP/1.1 has no other way to report it */
const BROKEN_OFF = "DAEMON_UNREACHABLE";
/** Client timeout for a sandbox that does not answer */
const GIVE_UP_MS = patience(0.15);
/** Number of evals on the sibling during the attack */
const SIBLING_EVALS = 12;

describe("a guest whose agent is taken over", () => {
  let daemon: TestDaemon;
  let forkd: Controller;
  let hostile: string;
  let sibling: string;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    forkd = new Controller({ socket: daemon.socket, timeoutMs: patience(), retries: 0 });
    const [made] = await forkd.spawnSandboxes("python");
    assert.ok(made);
    sibling = made.id;
  });
  after(async () => daemon[Symbol.asyncDispose]());

  afterEach(async () => {
    await forkd.killSandbox(hostile);
    assert.equal((await forkd.evalCode(sibling, "6 * 7")).result, "42");
    const alive = await forkd.listSandboxes();
    assert.deepEqual(
      alive.map(({ id }) => id),
      [sibling],
    );
  });

  async function takeOver(mode: string): Promise<void> {
    const [made] = await forkd.spawnSandboxes("python");
    assert.ok(made);
    hostile = made.id;
    await forkd.writeFile(hostile, "/tmp/hostile.py", await readFile(HOSTILE));
    const started = await forkd.execCommand(hostile, ["python3", "/tmp/hostile.py", mode]);
    assert.equal(started.exit_code, 0, started.stderr);
    // This request may stay unanswered, because the agent is stopped from then on; the console shows when.
    const left = new AbortController();
    forkd.writeFile(hostile, "/tmp/begin", new Uint8Array(), { signal: left.signal }).catch(() => undefined);
    await until(async () => (await Array.fromAsync(forkd.logs(hostile))).join("").includes("attacking"));
    left.abort();
  }

  /** Makes every kind of request during the attack; the sibling must answer, and the daemon's memory must stay bounded */
  async function useAll(): Promise<Set<string>> {
    const before = residentMemory(daemon.pid).bytes / MIB;
    const told = new Set<string>();
    const over = new AbortController();
    let most = before;
    const ask = async (work: (signal: AbortSignal) => Promise<unknown>): Promise<void> => {
      while (!over.signal.aborted) {
        try {
          await work(AbortSignal.timeout(GIVE_UP_MS));
        } catch (error) {
          const isOurs = error instanceof Error && error.name === "TimeoutError";
          told.add(isOurs ? "no answer" : error instanceof ForkdError ? error.code : String(error));
          await sleep(20);
        }
      }
    };
    const askSibling = async (): Promise<void> => {
      // at least until a client of the hostile sandbox got an error
      for (let i = 0; i < SIBLING_EVALS || told.size === 0; i++) {
        assert.equal((await forkd.evalCode(sibling, "6 * 7", { timeoutSecs: patience() / 1000 })).result, "42");
        most = Math.max(most, residentMemory(daemon.pid).bytes / MIB);
      }
    };
    await Promise.all([
      askSibling().finally(() => over.abort()),
      ask(async (signal) => forkd.pingSandbox(hostile, { signal })),
      ask(async (signal) => forkd.execCommand(hostile, ["true"], { signal })),
      ask(async (signal) => forkd.evalCode(hostile, "1", { signal })),
      ask(async (signal) => forkd.statFile(hostile, "/etc", { signal })),
      ask(async (signal) => forkd.readFile(hostile, "/etc/passwd", { signal })),
      ask(async (signal) => forkd.writeFile(hostile, "/tmp/large", new Uint8Array(16 * MIB), { signal })),
    ]);
    assert.ok(most - before < MOST_MORE_MIB, `the daemon took ${most - before} MiB more`);
    for (const code of told) assert.ok(TOLD.includes(code) || code === BROKEN_OFF, `a client got ${code}`);
    return told;
  }

  for (const [mode, what] of [
    ["garbage", "that sends invalid frames"],
    ["foreign", "that sends on streams it does not own"],
    ["lies", "that sends wrong sizes"],
    ["too_much", "that sends more than it has credit for"],
    ["flood", "that floods the host"],
    ["endless", "that sends files without an end"],
    ["silent", "that neither reads nor answers"],
  ] as const) {
    it(`${what} affects only itself`, async () => {
      await takeOver(mode);
      assert.ok((await useAll()).size > 0, "the attack had no effect on clients");
    });
  }

  it("can still be branched, paused and ended", async () => {
    await takeOver("silent");
    const branch = await forkd.branchSandbox(hostile, { tag: "hostile" });
    assert.equal(branch.tag, "hostile");
    assert.equal((await forkd.pauseSandbox(hostile)).state, "paused");
    assert.equal((await forkd.resumeSandbox(hostile)).state, "running");
    await forkd.deleteSnapshot("hostile");
  });
});

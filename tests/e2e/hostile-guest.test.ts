// Guests that are taken over: root inside stops the agent and speaks in its place. It can spoil its own sandbox and nothing else.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Controller, ForkdError } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";

const MIB = 1024 * 1024;
const SECONDS = 2;
/** What the daemon may take for itself while it is attacked */
const MOST_MORE_MIB = 96;
const HOSTILE = join(import.meta.dirname, "..", "helpers", "hostile.py");
/** What the clients of a sandbox may be told whose agent is another's */
const TOLD = ["AGENT_LOST", "AGENT_TIMEOUT", "AGENT_PROTOCOL", "BAD_REQUEST", "FILE_FAILED", "EXEC_FAILED", "KERNEL_DIED", "no answer"];
/** A file that breaks off in the middle of its way takes the connection along: HTTP has no other word for it */
const BROKEN_OFF = "DAEMON_UNREACHABLE";
const PATIENCE_MS = 1500;

describe("a guest whose agent is taken over", () => {
  let daemon: TestDaemon;
  let forkd: Controller;
  let hostile: string;
  let sibling: string;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    forkd = new Controller({ socket: daemon.socket, timeoutMs: 20_000, retries: 0 });
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
    const started = await forkd.execCommand(hostile, ["python3", "/tmp/hostile.py", mode, String(SECONDS)]);
    assert.equal(started.exit_code, 0, started.stderr);
    await sleep(1000);
  }

  /** Everything a client can ask while it lasts; the sibling goes on answering, and the daemon stays small */
  async function useAll(): Promise<{ answers: number; told: Set<string> }> {
    const before = await rssMib(daemon.pid);
    const told = new Set<string>();
    const until = Date.now() + SECONDS * 1000;
    let most = before;
    let answers = 0;
    const ask = async (work: (signal: AbortSignal) => Promise<unknown>): Promise<void> => {
      while (Date.now() < until) {
        try {
          await work(AbortSignal.timeout(PATIENCE_MS));
        } catch (error) {
          const isOurs = error instanceof Error && error.name === "TimeoutError";
          told.add(isOurs ? "no answer" : error instanceof ForkdError ? error.code : String(error));
          await sleep(20);
        }
      }
    };
    const askSibling = async (): Promise<void> => {
      while (Date.now() < until) {
        assert.equal((await forkd.evalCode(sibling, "6 * 7")).result, "42");
        answers++;
        most = Math.max(most, await rssMib(daemon.pid));
      }
    };
    await Promise.all([
      askSibling(),
      ask(async (signal) => forkd.pingSandbox(hostile, { signal })),
      ask(async (signal) => forkd.execCommand(hostile, ["true"], { signal })),
      ask(async (signal) => forkd.evalCode(hostile, "1", { signal })),
      ask(async (signal) => forkd.statFile(hostile, "/etc", { signal })),
      ask(async (signal) => forkd.readFile(hostile, "/etc/passwd", { signal })),
      ask(async (signal) => forkd.writeFile(hostile, "/tmp/large", new Uint8Array(16 * MIB), { signal })),
    ]);
    assert.ok(most - before < MOST_MORE_MIB, `the daemon took ${most - before} MiB more`);
    for (const code of told) assert.ok(TOLD.includes(code) || code === BROKEN_OFF, `a client was told ${code}`);
    return { answers, told };
  }

  for (const [mode, what] of [
    ["garbage", "that says what is no frame"],
    ["foreign", "that speaks for streams it does not own"],
    ["lies", "that lies about sizes"],
    ["too_much", "that sends more than it has credit for"],
    ["flood", "that floods the host"],
    ["endless", "that sends files without an end"],
    ["silent", "that neither reads nor answers"],
  ] as const) {
    it(`${what} harms itself alone`, async () => {
      await takeOver(mode);
      const { answers, told } = await useAll();
      assert.ok(told.size > 0, "nothing of the attack was seen");
      assert.ok(answers > 10, `the sibling answered only ${answers} times`);
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

async function rssMib(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) / 1024;
}

// Guests that exhaust processes, memory or files: each gets its own errors, without an effect on siblings and host.

import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import { Controller, ForkdError } from "forkd";
import { rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { residentMemory } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";

const MEMORY_MIB = 256;
/** Allowed overhead of a VMM: its code, translated code and buffers */
const VMM_MORE_MIB = 160;

describe("a guest that exhausts", () => {
  let daemon: TestDaemon;
  let forkd: Controller;
  let greedy: string;
  let sibling: string;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    forkd = new Controller({ socket: daemon.socket, timeoutMs: patience(), retries: 0 });
    [sibling] = await fork();
  });
  after(async () => daemon[Symbol.asyncDispose]());
  afterEach(async () => {
    assert.equal((await forkd.evalCode(sibling, "6 * 7", { timeoutSecs: patience() / 1000 })).result, "42");
    await forkd.killSandbox(greedy);
    const alive = await forkd.listSandboxes();
    assert.deepEqual(
      alive.map(({ id }) => id),
      [sibling],
    );
  });

  async function fork(): Promise<[string]> {
    const [made] = await forkd.spawnSandboxes("python");
    assert.ok(made);
    return [made.id];
  }

  async function script(text: string): Promise<{ code: number; output: string }> {
    const result = await forkd.execCommand(greedy, ["sh", "-c", text], { timeoutSecs: patience() / 1000 });
    return { code: result.exit_code, output: result.stdout + result.stderr };
  }

  it("its memory loses the program that used it, and continues", async () => {
    [greedy] = await fork();
    for (let i = 0; i < rounds(2, 20); i++) {
      const { code, output } = await script(
        "python3 -c 'held = bytearray(1 << 40)' ; python3 -c 'held = []\nwhile True: held.append(bytearray(1 << 20))'",
      );
      assert.match(output, /MemoryError/);
      assert.equal(code, 128 + 9, "the guest's own kernel ends it");
      assert.equal((await forkd.evalCode(greedy, "1 + 1")).result, "2", "and no other");
    }
    const { pid } = await forkd.getSandbox(greedy);
    const rssMib = residentMemory(pid ?? 0).bytes / 1024 ** 2;
    assert.ok(rssMib < MEMORY_MIB + VMM_MORE_MIB, `its VMM has ${rssMib} MiB`);
  });

  it("its file system gets ENOSPC, and space again when it removes files", async () => {
    [greedy] = await fork();
    const { code, output } = await script("dd if=/dev/zero of=/root/large bs=1M count=4096");
    assert.notEqual(code, 0);
    assert.match(output, /No space left/);
    await assert.rejects(forkd.writeFile(greedy, "/root/more", new Uint8Array(64 * 1024 * 1024)), (error: ForkdError) =>
      /ENOSPC|No space/.test(`${error.message}${JSON.stringify(error.details)}`),
    );
    assert.equal((await script("ls /root && rm /root/large")).output.trim(), "large");
    assert.equal((await forkd.writeFile(greedy, "/root/more", new Uint8Array(1024))).bytes, 1024);
  });

  it("its processes can be inspected, or at least ended", async () => {
    [greedy] = await fork();
    // an endless fork bomb; its parent returns at once
    await script("(bomb() { bomb | bomb & }; bomb) >/dev/null 2>&1");
    for (let i = 0; i < 20; i++) assert.equal((await forkd.evalCode(sibling, "6 * 7", { timeoutSecs: patience() / 1000 })).result, "42");
    // requests to the exhausted guest may fail or be slow, but must not affect others
    await forkd
      .execCommand(greedy, ["true"], { timeoutSecs: patience(0.5) / 1000, timeoutMs: patience(2) })
      .catch((error: unknown) => assert.ok(error instanceof ForkdError));
    for (let i = 0; i < 20; i++) assert.equal((await forkd.evalCode(sibling, "6 * 7", { timeoutSecs: patience() / 1000 })).result, "42");
  });
});

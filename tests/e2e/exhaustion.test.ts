// Guests that use up what they have: processes, memory, files. Each gets its own errors; siblings and host notice nothing.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, afterEach, before, describe, it } from "node:test";
import { Controller, ForkdError } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";

const MEMORY_MIB = 256;
/** A VMM may be larger than its guest by its own code, translated code and buffers */
const VMM_MORE_MIB = 160;

describe("a guest that uses up", () => {
  let daemon: TestDaemon;
  let forkd: Controller;
  let greedy: string;
  let sibling: string;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    forkd = new Controller({ socket: daemon.socket, timeoutMs: 60_000, retries: 0 });
    [sibling] = await fork();
  });
  after(async () => daemon[Symbol.asyncDispose]());
  afterEach(async () => {
    assert.equal((await forkd.evalCode(sibling, "6 * 7")).result, "42");
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

  async function script(text: string, timeoutMs = 50_000): Promise<{ code: number; output: string }> {
    const result = await forkd.execCommand(greedy, ["sh", "-c", text], { timeoutSecs: timeoutMs / 1000 });
    return { code: result.exit_code, output: result.stdout + result.stderr };
  }

  it("its memory loses the program that did, and goes on", async () => {
    [greedy] = await fork();
    const { code, output } = await script(
      "python3 -c 'held = bytearray(1 << 40)' ; python3 -c 'held = []\nwhile True: held.append(bytearray(1 << 20))'",
    );
    assert.match(output, /MemoryError/);
    assert.equal(code, 128 + 9, "the guest's own kernel ends it");
    assert.equal((await forkd.evalCode(greedy, "1 + 1")).result, "2");
    const pid = (await forkd.getSandbox(greedy)).pid;
    const status = await readFile(`/proc/${pid}/status`, "utf8");
    const rssMib = Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) / 1024;
    assert.ok(rssMib < MEMORY_MIB + VMM_MORE_MIB, `its VMM has ${rssMib} MiB`);
  });

  it("its files gets ENOSPC, and room again when it removes them", async () => {
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

  it("its processes still can be looked at, or at least ended", async () => {
    [greedy] = await fork();
    // a bomb that never ends; its parent returns at once
    await script("(bomb() { bomb | bomb & }; bomb) >/dev/null 2>&1");
    for (let i = 0; i < 20; i++) assert.equal((await forkd.evalCode(sibling, "6 * 7")).result, "42");
    // what it is asked may fail or come late, and never hurts anybody else
    await forkd
      .execCommand(greedy, ["true"], { timeoutSecs: 5, timeoutMs: 20_000 })
      .catch((error: unknown) => assert.ok(error instanceof ForkdError));
    for (let i = 0; i < 20; i++) assert.equal((await forkd.evalCode(sibling, "6 * 7")).result, "42");
  });
});

// A VM that its VMM stops without a request. A socket that speaks QMP stands in for QEMU, because no accelerator fails
// on demand.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { rejection } from "../../../../tests/helpers/guest.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { endingOf } from "../../src/sandbox/vmm-end.ts";
import { QemuEngine } from "../../src/vmm/qemu/engine.ts";
import type { Exit, Warden } from "../../src/warden/warden.ts";
import type { Vm } from "../../src/vmm/driver.ts";

const GREETING = { QMP: { version: {}, capabilities: [] } };
const PANIC =
  "[    9.1] BUG: kernel NULL pointer dereference, address: 0000000000000008\n[    9.2] Kernel panic - not syncing: Fatal exception";
const KVM_LOG = "KVM internal error. Suberror: 1\nRAX=0000000000000000 RBX=0000000000000000\nCode=00 00 00";

class FakeQemu {
  status = "running";
  console = "";
  /** command that fails */
  refuses = "";
  readonly asked: string[] = [];
  killed = 0;
  readonly vm: Promise<Vm>;
  readonly #exit = Promise.withResolvers<Exit>();
  readonly #sockets = new Set<Socket>();

  constructor(t: TestContext, log = "") {
    this.vm = this.#start(t, log);
  }

  say(line: object): void {
    for (const socket of this.#sockets) socket.write(`${JSON.stringify(line)}\n`);
  }

  endGuest(reason: string): void {
    this.say({ event: "SHUTDOWN", data: { guest: true, reason } });
    this.#turn("shutdown", "STOP");
  }

  end(exit: Exit): void {
    for (const socket of this.#sockets) socket.end();
    this.#exit.resolve(exit);
  }

  async #start(t: TestContext, log: string): Promise<Vm> {
    const dir = await mkdtemp(join(tmpdir(), "forkd-stops-"));
    await writeFile(join(dir, "vmm.log"), log);
    const server = createServer((socket) => this.#serve(socket));
    await new Promise<void>((resolve) => server.listen(join(dir, "qmp"), resolve));
    t.after(async () => {
      for (const socket of this.#sockets) socket.destroy();
      server.close();
      await rm(dir, { recursive: true });
    });
    const kill = async (): Promise<void> => {
      this.killed++;
      this.end({ code: null, signal: "SIGKILL" });
    };
    const process = { pid: 1, startTime: "1", exited: this.#exit.promise, kill };
    const warden = { adopt: () => process } as unknown as Warden;
    const qemu = { path: "/q", version: "7.2.22", files: [] };
    const engine = new QemuEngine({
      qemu,
      accelerator: { accelerator: "tcg", reason: "not asked for" },
      warden: async () => warden,
      confinement: { kind: "none", reason: "not asked for" },
    });
    return engine.adopt({ pid: 1, startTime: "1" }, dir, join(dir, "memory.ram"));
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket.setEncoding("utf8").on("error", () => undefined));
    this.say(GREETING);
    socket.on("data", (text: string) => {
      for (const line of text.split("\n").filter((one) => one !== "")) this.#answer(JSON.parse(line) as { execute: string; id: number });
    });
  }

  #answer({ execute, id }: { execute: string; id: number }): void {
    if (execute === "stop") this.#turn("paused", "STOP");
    if (execute === "cont") this.#turn("running", "RESUME");
    this.asked.push(execute);
    if (execute === this.refuses) return this.say({ error: { desc: "refused" }, id });
    this.say({ return: this.#replyTo(execute), id });
    if (execute === "quit") this.end({ code: 0, signal: null });
  }

  #replyTo(command: string): unknown {
    if (command === "query-status") return { status: this.status, running: this.status === "running" };
    return command === "ringbuf-read" ? Buffer.from(this.console).toString("base64") : {};
  }

  #turn(status: string, event: string): void {
    this.status = status;
    this.say({ event });
  }
}

describe("a VM that forkd did not stop", { timeout: patience() }, () => {
  for (const status of ["internal-error", "guest-panicked", "paused"])
    test(`and that stops with ${status} is ended with the reason and QEMU's message`, async (t) => {
      const qemu = new FakeQemu(t, KVM_LOG);
      const vm = await qemu.vm;
      vm.watch();
      await vm.isRunning();
      qemu.status = status;
      qemu.say({ event: "STOP" });
      const exit = await vm.exited;
      assert.equal(endingOf(exit), `QEMU stopped the guest (${status}): KVM internal error. Suberror: 1`);
      assert.match(exit.log, /RAX=0/);
      assert.equal(qemu.killed, 1);
    });

  test("and that failed before the event handler was installed is ended", async (t) => {
    const qemu = new FakeQemu(t);
    qemu.status = "internal-error";
    const vm = await qemu.vm;
    vm.watch();
    assert.equal((await vm.exited).failure, "QEMU stopped the guest (internal-error)");
  });

  test("and whose kernel panics is ended", async (t) => {
    const qemu = new FakeQemu(t);
    const vm = await qemu.vm;
    vm.watch();
    await vm.isRunning();
    qemu.say({ event: "GUEST_PANICKED", data: { action: "pause" } });
    assert.equal((await vm.exited).failure, "the guest's kernel panicked");
  });

  for (const [name, written, ending] of [
    ["a panic", PANIC, ": BUG: kernel NULL pointer dereference, address: 0000000000000008"],
    ["nothing", "", ""],
  ] as const)
    test(`and that restarts is ended with ${name} on its console`, async (t) => {
      const qemu = new FakeQemu(t);
      qemu.console = written;
      const vm = await qemu.vm;
      vm.watch();
      await vm.isRunning();
      qemu.endGuest("guest-reset");
      const exit = await vm.exited;
      assert.equal(endingOf(exit), `the guest restarted, as it does when its kernel panics${ending}`);
      assert.deepEqual([exit.code, exit.console, qemu.killed], [0, written, 0]);
    });

  test("and that powers off is ended, without a reason", async (t) => {
    const qemu = new FakeQemu(t);
    const vm = await qemu.vm;
    vm.watch();
    await vm.isRunning();
    qemu.endGuest("guest-shutdown");
    const exit = await vm.exited;
    assert.deepEqual([exit.code, exit.failure, qemu.killed], [0, null, 0]);
  });

  test("and whose agent fails is ended with the agent's message", async (t) => {
    const qemu = new FakeQemu(t);
    qemu.console = "forkd-agent: FATAL: agent: \u001b[31mOut of memory";
    const vm = await qemu.vm;
    vm.watch();
    await vm.isRunning();
    qemu.endGuest("guest-shutdown");
    assert.equal(endingOf(await vm.exited), "the guest's agent failed: forkd-agent: FATAL: agent: [31mOut of memory");
  });

  test("and whose guest ended before the control channel was open is ended", async (t) => {
    const qemu = new FakeQemu(t);
    qemu.console = PANIC;
    qemu.status = "shutdown";
    const vm = await qemu.vm;
    await rejection(vm.isRunning(), "VMM_EXITED");
    const exit = await vm.exited;
    assert.equal(exit.console, PANIC);
    assert.match(endingOf(exit), /^the guest restarted, .*: BUG: kernel NULL pointer/);
  });

  test("and whose VMM does not answer after the end of its guest is killed", async (t) => {
    const qemu = new FakeQemu(t);
    qemu.refuses = "ringbuf-read";
    const vm = await qemu.vm;
    vm.watch();
    await vm.isRunning();
    qemu.endGuest("guest-reset");
    assert.equal((await vm.exited).signal, "SIGKILL");
  });

  test("and that QEMU ends by itself gets no further command", async (t) => {
    const qemu = new FakeQemu(t);
    const vm = await qemu.vm;
    vm.watch();
    await vm.isRunning();
    qemu.say({ event: "SHUTDOWN", data: { guest: false, reason: "host-signal" } });
    qemu.end({ code: 0, signal: null });
    assert.deepEqual([(await vm.exited).failure, qemu.asked.includes("ringbuf-read")], [null, false]);
  });
});

describe("a paused VM", { timeout: patience() }, () => {
  test("is not ended, and watched again after its resume", async (t) => {
    const qemu = new FakeQemu(t);
    const vm = await qemu.vm;
    vm.watch();
    await vm.pause();
    assert.equal(await vm.isRunning(), false);
    await vm.resume();
    assert.equal(await vm.isRunning(), true);
    assert.equal(qemu.killed, 0);
    qemu.status = "internal-error";
    qemu.say({ event: "STOP" });
    await until(() => qemu.killed === 1);
  });

  test("of an earlier process is not ended", async (t) => {
    const qemu = new FakeQemu(t);
    qemu.status = "paused";
    const vm = await qemu.vm;
    vm.watch();
    for (let i = 0; i < 3; i++) assert.equal(await vm.isRunning(), false);
    assert.equal(qemu.killed, 0);
  });
});

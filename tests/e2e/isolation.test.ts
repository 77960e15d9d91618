// A snapshot made under emulation, on a host with KVM. The option claims that KVM works on this host; no VM of this
// file uses it.

import assert from "node:assert/strict";
import { buffer } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { ensurePythonImage } from "../helpers/vm.ts";
import { TestDaemon } from "../helpers/daemon.ts";

/** A minimal snapshot, without kernels */
const PLAIN = { image: "python-numpy", memoryMib: 256, warmUp: { kernels: [] } };

type Check = { id: string; status: string; reason: string };

const REFUSED = {
  code: "ISOLATION_UNAVAILABLE",
  status: 503,
  message: /its snapshot was made without KVM, so it would be emulated, which isolation = auto forbids/,
};

describe("an emulated snapshot on a host with working KVM", () => {
  let daemon: TestDaemon;

  before(async () => {
    daemon = await TestDaemon.start(["--accelerator", "tcg"]);
    await ensurePythonImage(daemon.home);
    await daemon.controller.createSnapshot("python", PLAIN);
  });
  after(async () => daemon[Symbol.asyncDispose]());

  it("is forked only on request", async () => {
    const { controller } = daemon;
    const [asleep, running] = await controller.spawnSandboxes("python", { n: 2 });
    assert.ok(asleep && running);
    await controller.suspendSandbox(asleep.id);
    await daemon.down();
    await daemon.up(["--accelerator", "kvm"]);
    assert.equal((await controller.status()).isolation_policy, "auto");
    await assert.rejects(controller.spawnSandboxes("python"), REFUSED);
    const [allowed] = await controller.spawnSandboxes("python", { isolation: "any" });
    assert.equal(allowed?.isolation, "emulated");
    // sandboxes that were allowed before keep running, with the same isolation
    await controller.resumeSandbox(asleep.id);
    const forked = await controller.forkSandbox(running.id);
    assert.equal(forked.sandboxes[0]?.isolation, "emulated");
    await assert.rejects(controller.forkSandbox(running.id, { isolation: "kvm" }), { code: "ISOLATION_UNAVAILABLE" });
    await daemon.cli(["fork", "python"]).then(({ code, stderr }) => {
      assert.equal(code, 1);
      assert.match(stderr, /--isolation any/);
    });
  });

  it("cannot have a pool, which would start emulated VMs without a request", async () => {
    await assert.rejects(daemon.controller.updateSnapshot("python", { pool: 1 }), REFUSED);
    assert.equal((await daemon.controller.status()).pool_waiting, 0);
  });

  it("is unpacked with a warning about the isolation of its forks", async () => {
    const { controller } = daemon;
    const pack = await buffer(controller.readPack("python"));
    const { warnings } = await controller.unpack(pack, { tag: "python", force: true });
    assert.match(warnings.join(" "), /made without KVM.*refuses them here unless a fork asks for isolation = any/);
  });

  it("is marked as emulated by fork, inspect and doctor", async () => {
    const forked = await daemon.cli(["fork", "python", "--isolation", "any", "--name", "weak"]);
    assert.match(forked.stdout, /ISOLATION\n.*emulated\n/);
    const { stdout } = await daemon.cli(["inspect", "weak"]);
    assert.match(stdout, /isolation +emulated: by the engine's translator, which is not a security boundary/);
    const isolation = async (policy: string): Promise<Check | undefined> => {
      const env = { FORKD_ACCELERATOR: "kvm", FORKD_ISOLATION: policy };
      const report = JSON.parse((await daemon.cli(["doctor", "--json"], { env })).stdout) as { checks: Check[] };
      return report.checks.find(({ id }) => id === "isolation");
    };
    const refused = await isolation("auto");
    assert.equal(refused?.status, "pass");
    assert.match(refused.reason, /\(.*python.*\): isolation = auto refuses their forks/);
    const allowed = await isolation("any");
    assert.equal(allowed?.status, "warn");
    assert.match(allowed.reason, /\(.*python.*\): isolation = any lets their forks run emulated/);
  });

  it("is forked if the policy allows everything", async () => {
    await daemon.down();
    await daemon.up(["--accelerator", "kvm", "--isolation", "any"]);
    const [sandbox] = await daemon.controller.spawnSandboxes("python");
    assert.equal(sandbox?.isolation, "emulated");
  });
});

// The table of SECURITY.md on the isolation of guests, row by row. tests/e2e/confinement.test.ts tests the other table.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestDaemon } from "../helpers/daemon.ts";
import { cmdlineOf, mappingsOf } from "../helpers/host.ts";
import { ISOLATION } from "../helpers/security-rows.ts";

import type { SandboxInfo, Status } from "forkd";

/** PCI classes of network cards, displays, sound and USB */
const FOREIGN = /^0x(02|03|04|0c03)/;
const MAX_DEVICES = 8;
const REFUSED = {
  code: "ISOLATION_UNAVAILABLE",
  status: 503,
  message: /isolation = kvm demands KVM, which is not used on this host: .+/,
};

describe("the isolation of a guest", () => {
  let daemon: TestDaemon;
  let sandbox: SandboxInfo;
  let status: Status;
  const tests: Record<string, () => Promise<void>> = {
    "each sandbox says what runs its processor": async () => {
      const accelerator = / -accel (\w+)/.exec(cmdlineOf(sandbox.pid ?? 0).replaceAll("\0", " "))?.[1];
      const { stdout } = await daemon.cli(["doctor", "--json"]);
      const doctor = (JSON.parse(stdout) as { isolation: string }).isolation;
      const isolation = accelerator === "kvm" ? "kvm" : "emulated";
      assert.deepEqual([sandbox.isolation, status.isolation, doctor], [isolation, isolation, isolation]);
      const inspected = (await daemon.cli(["inspect", sandbox.id])).stdout;
      assert.match(inspected, isolation === "kvm" ? /^isolation +kvm$/m : /^isolation +emulated: .*not a security boundary$/m);
    },
    "guest memory is a mapping of the VMM": async () => {
      const mappings = await mappingsOf(sandbox.pid ?? 0, "/memory.ram");
      assert.ok(mappings.length > 0, "its memory image is not mapped");
      for (const { permissions } of mappings) assert.match(permissions, /^rw.p$/, "a fork could change the shared image");
    },
    "a guest has few devices": async () => {
      const code = 'import glob; sorted(open(path).read().strip() for path in glob.glob("/sys/bus/pci/devices/*/class"))';
      const classes = (await daemon.controller.evalCode(sandbox.id, code)).value as string[];
      assert.ok(classes.length > 0 && classes.length <= MAX_DEVICES, classes.join());
      assert.deepEqual(
        classes.filter((kind) => FOREIGN.test(kind)),
        [],
      );
    },
    "with isolation = kvm nothing emulated is started": async () => {
      const { controller } = daemon;
      await controller.suspendSandbox(sandbox.id);
      const [kept] = await controller.spawnSandboxes("python");
      assert.ok(kept);
      await daemon.down();
      await daemon.up(["--isolation", "kvm"]);
      assert.equal((await controller.status()).isolation_policy, "kvm");
      assert.equal((await controller.evalCode(kept.id, "1 + 1")).value, 2, "a running VM was ended");
      if (status.isolation === "kvm") {
        const [another] = await controller.spawnSandboxes("python");
        assert.equal(another?.isolation, "kvm");
        return;
      }
      await assert.rejects(controller.spawnSandboxes("python"), REFUSED);
      await assert.rejects(controller.forkSandbox(kept.id), REFUSED);
      await assert.rejects(controller.createSnapshot("more"), REFUSED);
      await assert.rejects(controller.updateSnapshot("python", { pool: 1 }), REFUSED);
      await assert.rejects(controller.resumeSandbox(sandbox.id), REFUSED);
      assert.equal((await controller.getSandbox(kept.id)).branch_count, 0, "the source was stopped");
      assert.match((await daemon.cli(["status"])).stdout, /^isolation +emulated, although kvm is demanded: no VM starts$/m);
    },
  };
  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    const [made] = await daemon.controller.spawnSandboxes("python");
    assert.ok(made);
    sandbox = made;
    status = await daemon.controller.status();
  });
  after(async () => daemon[Symbol.asyncDispose]());

  for (const { what, test } of ISOLATION)
    it(`${what}: ${test}`, async () => {
      const run = tests[test];
      assert.ok(run, "the row has no test");
      await run();
    });
});

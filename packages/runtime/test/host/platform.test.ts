// The platform table: the row of this host, and the engine arguments that the other rows give.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { PLATFORM, PLATFORMS, type Platform } from "../../src/host/platform.ts";
import { bootArgs } from "../../src/vmm/qemu/args.ts";
import { guestCommandLine, trialCommandLine } from "../../src/vmm/qemu/command-line.ts";

const root = join(import.meta.dirname, "../../../..");
const files = { dir: "/run/x", rootfs: "/r", memory: "/m", disk: null, guestKernel: "/k", initrd: "/i", commandLine: "" };

function argsOf(platform: Platform, accelerator: "kvm" | "tcg"): string {
  const { type, cpu } = platform.machine;
  const features = accelerator === "kvm" ? { features: [] } : {};
  const shape = { engine: "qemu", engineVersion: "7.2", machine: type, devices: "few", cpu, accelerator, ...features } as const;
  return bootArgs({ ...files, shape: { ...shape, vcpus: 1, memoryMiB: 64 } }, platform).join(" ");
}

function rowOf(name: Platform["name"]): Platform {
  return PLATFORMS.find((row) => row.name === name) ?? assert.fail(`no row ${name}`);
}

test("this process uses the row of its processor", () => {
  assert.equal(PLATFORM.node, process.arch);
  assert.equal(PLATFORM.isTested, true);
});

test("only x86_64 is marked as tested", () => {
  assert.deepEqual(
    PLATFORMS.filter(({ isTested }) => isTested).map(({ name }) => name),
    ["x86_64"],
  );
});

test("x86_64 has the machine, clock and console that snapshots were made with", () => {
  const row = rowOf("x86_64");
  assert.match(argsOf(row, "tcg"), /-machine pc-q35-7\.2,\S*,hpet=on,smm=off,vmport=off,graphics=off,sata=off,smbus=off,i8042=off /);
  assert.match(argsOf(row, "kvm"), /hpet=off,.* -cpu Nehalem-v1,vmx=off,svm=off,enforce=on .*isa-serial,chardev=console .*vmgenid/);
  assert.match(guestCommandLine("tcg", row), /^console=ttyS0 .* no_timer_check tsc=unstable clocksource=hpet .*lsm= .*noreplace-smp$/);
  assert.match(guestCommandLine("kvm", row), / clocksource=kvm-clock$/);
  assert.match(trialCommandLine(row), /^earlyprintk=serial,ttyS0 console=ttyS0 /);
});

test("aarch64 gets no device that only a PC has", () => {
  const row = rowOf("aarch64");
  for (const accelerator of ["kvm", "tcg"] as const) {
    assert.match(argsOf(row, accelerator), /-machine virt-7\.2,.* -cpu cortex-a57/);
    assert.doesNotMatch(argsOf(row, accelerator), /hpet|smm|vmport|i8042|sata|isa-serial|vmx|svm|vmgenid/);
    assert.match(guestCommandLine(accelerator, row), /^console=ttyAMA0 /);
    assert.doesNotMatch(guestCommandLine(accelerator, row), /hpet|tsc|kvm-clock|no_timer_check|ttyS0/);
  }
});

test("the warden's filter has the audit architecture of the tested processor", async () => {
  const filter = await readFile(join(root, "warden/src/filter.rs"), "utf8");
  const [, written = ""] = /AUDIT_ARCH_X86_64: u32 = (0x[0-9a-f_]+);/.exec(filter) ?? [];
  assert.equal(Number(written.replaceAll("_", "")), rowOf("x86_64").seccomp);
});

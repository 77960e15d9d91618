import assert from "node:assert/strict";
import { test } from "node:test";
import { reportOf } from "../../src/host/report.ts";

import type { Check } from "../../src/host/checks.ts";
import type { HostFacts } from "../../src/host/host-facts.ts";

const GIB = 1024 ** 3;

const GOOD: HostFacts = {
  platform: "linux",
  arch: "x64",
  uid: 1000,
  user: "ada",
  hostKernel: "6.12.1",
  qemu: { path: "/usr/bin/qemu-system-x86_64", version: "7.2.22" },
  accelerator: { accelerator: "kvm", reason: "a guest booted" },
  probeFailure: null,
  guestKernel: "6.12.0, /k/vmlinux",
  mmdebstrap: "/usr/bin/mmdebstrap",
  sqfstar: "/usr/bin/sqfstar",
  newuidmap: "/usr/bin/newuidmap",
  mkfs: "/usr/sbin/mkfs.ext4",
  qemuImg: "/usr/bin/qemu-img",
  hasSubIds: true,
  userNamespaces: { usable: true, reason: "" },
  namespaceSettings: { clone: null, most: 31000, apparmor: null },
  confinement: { kind: "namespaces", reason: null },
  group: { path: "/sys/fs/cgroup/user", controllers: ["memory", "cpu", "pids", "io"], reason: null },
  memoryAvailableMiB: 8000,
  diskFreeBytes: 50 * GIB,
  hasReflink: true,
  ptraceScope: 1,
  agentBinary: "/f/dist/bin/forkd-agent",
  wardenBinary: "/f/dist/bin/forkd-warden",
  hasSoftDirty: true,
  home: { root: "/home/ada/.local/share/forkd", run: "/run/user/1000/forkd", owner: 1000, mode: 0o700 },
  limits: { openFiles: 524288, processes: 31000 },
  overcommit: 0,
};

const REFUSED: HostFacts["confinement"] = { kind: "none", reason: "making namespaces: EPERM" };
const NO_CLONE = { ...GOOD.namespaceSettings, clone: 0 };
const NONE = { ...GOOD.namespaceSettings, most: 0 };
const APPARMOR = { ...GOOD.namespaceSettings, apparmor: 1 };

function check(id: string, facts: Partial<HostFacts>): Check {
  const found = reportOf({ ...GOOD, ...facts }).checks.find((entry) => entry.id === id);
  assert.ok(found, `there is a check ${id}`);
  return found;
}

test("a good host passes every check and is told that KVM isolates", () => {
  const report = reportOf(GOOD);
  assert.deepEqual(
    report.checks.filter((entry) => entry.status !== "pass"),
    [],
  );
  assert.equal(report.ok, true);
  assert.equal(report.isolation, "kvm");
  assert.equal(report.confinement, "namespaces");
  assert.match(report.summary, /^Ready\. VMs will use KVM/);
});

test("without KVM the report says that emulation is no security boundary, and is still ok", () => {
  const report = reportOf({ ...GOOD, accelerator: { accelerator: "tcg", reason: "no guest booted under kvm" } });
  assert.equal(report.ok, true);
  assert.equal(report.isolation, "emulated");
  assert.match(report.summary, /not a security boundary/);
  assert.equal(report.checks.find((entry) => entry.id === "isolation")?.status, "warn");
});

test("an unknown accelerator is never reported as isolation", () => {
  const report = reportOf({ ...GOOD, accelerator: null });
  assert.equal(report.isolation, null);
  assert.match(report.summary, /not known yet/);
});

const CASES: [title: string, id: string, facts: Partial<HostFacts>, status: Check["status"], text: RegExp][] = [
  ["another platform", "platform", { platform: "darwin" }, "fail", /linux x86_64/],
  ["no QEMU", "qemu", { qemu: null }, "fail", /sudo apt-get install --yes qemu-system-x86/],
  ["no QEMU, as root", "qemu", { qemu: null, uid: 0 }, "fail", /: apt-get install --yes qemu-system-x86/],
  ["a QEMU that is too old", "qemu", { qemu: { path: "/q", version: "6.2.0" } }, "fail", /needs 7\.2/],
  ["QEMU 10", "qemu", { qemu: { path: "/q", version: "10.0.1" } }, "pass", /10\.0\.1/],
  ["a probe that breaks", "accelerator", { accelerator: null, probeFailure: "no warden" }, "fail", /no warden/],
  ["no guest kernel", "guest-kernel", { guestKernel: null }, "fail", /make setup/],
  ["no agent", "agent", { agentBinary: null }, "fail", /make setup/],
  ["no warden", "warden", { wardenBinary: null }, "fail", /make setup/],
  ["no mmdebstrap", "mmdebstrap", { mmdebstrap: null }, "warn", /apt-get install --yes mmdebstrap/],
  ["no sqfstar", "sqfstar", { sqfstar: null }, "fail", /squashfs-tools/],
  ["no mkfs", "disk-tools", { mkfs: null }, "warn", /apt-get install --yes e2fsprogs/],
  ["no qemu-img", "disk-tools", { qemuImg: null }, "warn", /apt-get install --yes qemu-utils/],
  ["no sub-ids", "sub-ids", { hasSubIds: false }, "warn", /usermod --add-subuids .* ada$/],
  ["no sub-ids, as root", "sub-ids", { hasSubIds: false, uid: 0 }, "pass", /Not needed/],
  ["no user namespaces", "user-namespaces", { userNamespaces: { usable: false, reason: "EPERM" } }, "warn", /EPERM/],
  ["no confinement", "confinement", { confinement: REFUSED }, "warn", /can do what ada can: making namespaces: EPERM/],
  ["a sysctl in its way", "confinement", { confinement: REFUSED, namespaceSettings: NO_CLONE }, "warn", /unprivileged_userns_clone=1/],
  ["no namespaces at all", "confinement", { confinement: REFUSED, namespaceSettings: NONE }, "warn", /max_user_namespaces=10000/],
  ["AppArmor in its way", "confinement", { confinement: REFUSED, namespaceSettings: APPARMOR }, "warn", /AppArmor.*operations/],
  ["confinement not tried", "confinement", { confinement: null }, "warn", /Not tried/],
  [
    "no control group",
    "cgroup",
    { group: { path: null, controllers: [], reason: "no cgroup v2" } },
    "warn",
    /memory, cpu, pids, io.*no cgroup v2/,
  ],
  [
    "a group without io",
    "cgroup",
    { group: { ...GOOD.group, controllers: ["memory", "cpu", "pids"], reason: "it lacks io" } },
    "warn",
    /of io cannot/,
  ],
  ["little memory", "memory", { memoryAvailableMiB: 1000 }, "warn", /1000 MiB/],
  ["no memory", "memory", { memoryAvailableMiB: 100 }, "fail", /not enough/],
  ["2 GiB of disk", "disk", { diskFreeBytes: 2 * GIB }, "warn", /5 GiB/],
  ["a full disk", "disk", { diskFreeBytes: GIB / 2 }, "fail", /at least 1 GiB/],
  ["no reflink", "reflink", { hasReflink: false }, "warn", /Btrfs/],
  ["somebody else's home", "home", { home: { ...GOOD.home, owner: 0 } }, "fail", /sudo chown -R ada/],
  ["a home others can write", "home", { home: { ...GOOD.home, mode: 0o777 } }, "fail", /chmod go-w/],
  ["no home yet", "home", { home: { ...GOOD.home, owner: null, mode: null } }, "pass", /first needed/],
  ["a long run folder", "socket-path", { home: { ...GOOD.home, run: `/${"x".repeat(80)}` } }, "fail", /FORKD_RUN/],
  ["ptrace scope 2", "ptrace", { ptraceScope: 2 }, "fail", /ptrace_scope=1/],
  ["ptrace scope 2, as root", "ptrace", { ptraceScope: 2, uid: 0 }, "pass", /root/],
  ["an old host kernel", "page-scan", { hostKernel: "6.1.0-13-amd64" }, "pass", /soft-dirty/],
  ["no way to scan", "page-scan", { hostKernel: "6.1.0", hasSoftDirty: false }, "warn", /compared/],
  ["low limits", "limits", { limits: { openFiles: 1024, processes: 100 } }, "warn", /open files 1024.*processes 100/],
  ["strict overcommit", "overcommit", { overcommit: 2 }, "warn", /sysctl -w vm\.overcommit_memory=0/],
];

for (const [title, id, facts, status, text] of CASES) {
  test(`${title}: ${status}`, () => {
    const result = check(id, facts);
    assert.equal(result.status, status);
    assert.match(`${result.reason}: ${result.fix ?? ""}`, text);
  });
}

test("one failed check makes the report fail and is named in its summary", () => {
  const report = reportOf({ ...GOOD, qemu: null, accelerator: null });
  assert.equal(report.ok, false);
  assert.match(report.summary, /^Not ready: qemu\./);
});

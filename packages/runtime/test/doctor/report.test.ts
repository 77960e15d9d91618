import assert from "node:assert/strict";
import { test } from "node:test";
import { reportOf } from "../../src/doctor/report.ts";

import type { Check } from "../../src/doctor/checks.ts";
import type { HostFacts } from "../../src/doctor/host-facts.ts";

const GIB = 1024 ** 3;

const GOOD: HostFacts = {
  platform: "linux",
  arch: "x64",
  uid: 1000,
  user: "ada",
  hostKernel: "6.12.1",
  engine: {
    name: "fake",
    title: "Fake",
    isFound: true,
    isUsable: true,
    reason: "1.0, /usr/bin/fake",
    packages: "fake-system",
    diskTool: { name: "fake-img", path: "/usr/bin/fake-img", packages: "fake-utils" },
  },
  accelerator: { accelerator: "kvm", reason: "a guest booted", freezeObstacle: null },
  probeFailure: null,
  isolationPolicy: "auto",
  emulatedSnapshots: [],
  guestKernel: "6.12.0, /k/vmlinux",
  mmdebstrap: "/usr/bin/mmdebstrap",
  sqfstar: "/usr/bin/sqfstar",
  newuidmap: "/usr/bin/newuidmap",
  fakechroot: null,
  mkfs: "/usr/sbin/mkfs.ext4",
  hasSubIds: true,
  userNamespaces: { usable: true, reason: "" },
  namespaceSettings: { clone: null, most: 31000, apparmor: null },
  confinement: { kind: "namespaces", reason: null, calls: { filter: "listed", reason: null } },
  group: { path: "/sys/fs/cgroup/user", controllers: ["memory", "cpu", "pids", "io"], reason: null },
  memoryAvailableMiB: 8000,
  diskFreeBytes: 50 * GIB,
  hasReflink: true,
  ptraceScope: 1,
  cloneObstacle: null,
  agentBinary: "/f/dist/bin/forkd-agent",
  wardenBinary: "/f/dist/bin/forkd-warden",
  hasSoftDirty: true,
  home: { root: "/home/ada/.local/share/forkd", run: "/run/user/1000/forkd", owner: 1000, mode: 0o700 },
  limits: { openFiles: 524288, processes: 31000 },
  overcommit: 0,
};

const NO_ENGINE = { ...GOOD.engine, isFound: false, isUsable: false, reason: "It is not in PATH." };
const NO_DISK_TOOL = { ...GOOD.engine, diskTool: { ...GOOD.engine.diskTool, path: null } };
const TCG: HostFacts["accelerator"] = { accelerator: "tcg", reason: "no guest booted under kvm" };
const UNLISTED: HostFacts["confinement"] = { kind: "namespaces", reason: null, calls: { filter: "deny", reason: "not known" } };
const REFUSED: HostFacts["confinement"] = { kind: "none", reason: "making namespaces: EPERM" };
const IN_SYSTEM: HostFacts["confinement"] = { kind: "none", reason: "/usr/forkd lies in a folder of the system, which every VMM sees" };
const NO_LIBRARY: HostFacts["confinement"] = { kind: "none", reason: "Cannot start qemu: /f/dist/bin/forkd-read-only.so: No such file." };
const NO_CLONE = { ...GOOD.namespaceSettings, clone: 0 };
const NONE = { ...GOOD.namespaceSettings, most: 0 };
const APPARMOR = { ...GOOD.namespaceSettings, apparmor: 1 };

function check(id: string, facts: Partial<HostFacts>): Check {
  const found = reportOf({ ...GOOD, ...facts }).checks.find((entry) => entry.id === id);
  assert.ok(found, `there is a check ${id}`);
  return found;
}

test("a good host passes every check and is reported as isolated by KVM", () => {
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
  const report = reportOf({ ...GOOD, accelerator: TCG });
  assert.equal(report.ok, true);
  assert.equal(report.isolation, "emulated");
  assert.match(report.summary, /not a security boundary/);
  assert.equal(report.checks.find((entry) => entry.id === "isolation")?.status, "warn");
});

test("if KVM is required and not used, the report fails and does not say that VMs will be emulated", () => {
  const report = reportOf({ ...GOOD, accelerator: TCG, isolationPolicy: "kvm" });
  assert.equal(report.ok, false);
  assert.match(report.summary, /^Not ready: isolation\. .*no VM starts\.$/);
});

test("the summary excepts emulated snapshots from what KVM isolates only where they may be forked", () => {
  const facts = { ...GOOD, emulatedSnapshots: ["old"] };
  assert.doesNotMatch(reportOf(facts).summary, /except/);
  assert.match(reportOf({ ...facts, isolationPolicy: "any" }).summary, /except in forks of snapshots that were made without KVM/);
});

test("an unknown accelerator is never reported as isolation", () => {
  const report = reportOf({ ...GOOD, accelerator: null });
  assert.equal(report.isolation, null);
  assert.match(report.summary, /not known yet/);
});

const CASES: [title: string, id: string, facts: Partial<HostFacts>, status: Check["status"], text: RegExp][] = [
  ["another platform", "platform", { platform: "darwin" }, "fail", /linux x86_64/],
  ["no engine", "fake", { engine: NO_ENGINE }, "fail", /^It is not in PATH\.: sudo apt-get install --yes fake-system$/],
  ["no engine, as root", "fake", { engine: NO_ENGINE, uid: 0 }, "fail", /: apt-get install --yes fake-system$/],
  ["an engine", "fake", {}, "pass", /^1\.0, \/usr\/bin\/fake/],
  ["a probe that breaks", "accelerator", { accelerator: null, probeFailure: "no warden" }, "fail", /no warden/],
  ["emulated snapshots, which are refused", "isolation", { emulatedSnapshots: ["a", "b"] }, "pass", /\(a, b\): isolation = auto refuses/],
  [
    "emulated snapshots, which are allowed",
    "isolation",
    { emulatedSnapshots: ["a", "b", "c", "d", "e"], isolationPolicy: "any" },
    "warn",
    /\(a, b, c and 2 more\): isolation = any lets .*Make them again/,
  ],
  ["no KVM, which is demanded", "isolation", { accelerator: TCG, isolationPolicy: "kvm" }, "fail", /no VM starts.*Set isolation = auto/],
  [
    "no KVM, which is demanded, with advice",
    "isolation",
    { accelerator: { ...TCG, advice: "sudo modprobe kvm_amd" }, isolationPolicy: "kvm" },
    "fail",
    /no VM starts.*: sudo modprobe kvm_amd$/,
  ],
  ["no guest kernel", "guest-kernel", { guestKernel: null }, "fail", /make setup/],
  ["no agent", "agent", { agentBinary: null }, "fail", /make setup/],
  ["no warden", "warden", { wardenBinary: null }, "fail", /make setup/],
  ["no mmdebstrap", "mmdebstrap", { mmdebstrap: null }, "warn", /apt-get install --yes mmdebstrap/],
  ["no sqfstar", "sqfstar", { sqfstar: null }, "fail", /squashfs-tools/],
  ["no mkfs", "disk-tools", { mkfs: null }, "warn", /apt-get install --yes e2fsprogs/],
  ["no disk tool", "disk-tools", { engine: NO_DISK_TOOL }, "warn", /fake-img is missing.*apt-get install --yes fake-utils/],
  ["no sub-ids", "sub-ids", { hasSubIds: false }, "warn", /usermod --add-subuids .* ada$/],
  [
    "no sub-ids, but fakechroot",
    "sub-ids",
    { hasSubIds: false, fakechroot: "/f" },
    "warn",
    /fakechroot, unconfined: .* can do what ada can/,
  ],
  ["no newuidmap, but fakechroot", "sub-ids", { newuidmap: null, fakechroot: "/f" }, "warn", /fakechroot, unconfined.*uidmap/],
  ["no sub-ids, as root", "sub-ids", { hasSubIds: false, uid: 0 }, "pass", /Not needed/],
  ["no user namespaces", "user-namespaces", { userNamespaces: { usable: false, reason: "EPERM" } }, "warn", /EPERM/],
  ["an engine whose calls are known", "confinement", {}, "pass", /only the list of those that this Fake needs/],
  ["an engine whose calls are not", "confinement", { confinement: UNLISTED }, "pass", /all but a list of forbidden ones: not known\./],
  ["no confinement", "confinement", { confinement: REFUSED }, "warn", /can do what ada can: making namespaces: EPERM/],
  ["a sysctl in its way", "confinement", { confinement: REFUSED, namespaceSettings: NO_CLONE }, "warn", /unprivileged_userns_clone=1/],
  ["no namespaces at all", "confinement", { confinement: REFUSED, namespaceSettings: NONE }, "warn", /max_user_namespaces=10000/],
  ["AppArmor in its way", "confinement", { confinement: REFUSED, namespaceSettings: APPARMOR }, "warn", /AppArmor.*operations/],
  ["confinement refused without a setting", "confinement", { confinement: REFUSED }, "warn", /EPERM: docs\/operations\.md, Confinement/],
  ["a store in the system", "confinement", { confinement: IN_SYSTEM }, "warn", /Set FORKD_HOME and FORKD_RUN/],
  ["a missing library", "confinement", { confinement: NO_LIBRARY }, "warn", /: make setup$/],
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
  [
    "a host that lets no process be traced",
    "vmm-fork",
    { accelerator: { accelerator: "tcg", reason: "no /dev/kvm" }, cloneObstacle: "ptrace: Operation not permitted" },
    "warn",
    /Operation not permitted/,
  ],
  ["KVM with frozen copies", "vmm-fork", {}, "pass", /from a frozen copy/],
  [
    "KVM without frozen copies",
    "vmm-fork",
    { accelerator: { accelerator: "kvm", reason: "a guest booted", freezeObstacle: "a page differs." } },
    "warn",
    /longer pause: a frozen copy was tried: a page differs\./,
  ],
  [
    "KVM that was not tried",
    "vmm-fork",
    { accelerator: { accelerator: "kvm", reason: "the setting accelerator is kvm" } },
    "warn",
    /only with accelerator = auto/,
  ],
  [
    "a host where VMMs can be copied",
    "vmm-fork",
    { accelerator: { accelerator: "tcg", reason: "no /dev/kvm" } },
    "pass",
    /copies of a VMM/,
  ],
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
  const report = reportOf({ ...GOOD, engine: NO_ENGINE, accelerator: null });
  assert.equal(report.ok, false);
  assert.match(report.summary, /^Not ready: fake\./);
});

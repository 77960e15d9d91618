// The checks of doctor: pure functions from host facts to a verdict, its reason and the command that fixes it.

import { basename } from "node:path";
import { MAX_RUN_BYTES } from "../paths.ts";
import { installation } from "../host/installation.ts";
import { PLATFORMS } from "../host/platform.ts";
import { CONTROLLERS } from "../host/own-group.ts";

import type { CallFilter } from "../vmm/driver.ts";
import type { HostFacts } from "./host-facts.ts";

export type CheckStatus = "pass" | "warn" | "fail";

export type Check = {
  id: string;
  status: CheckStatus;
  reason: string;
  /** exact command or setting that fixes it; absent when nothing has to or can be done */
  fix?: string;
};

type Verdict = Omit<Check, "id">;

const GIB = 1024 ** 3;
/** For 100 VMs: the daemon's open files, and the VMMs' threads */
const OPEN_FILES_100_VMS = 2048;
const PROCESSES_100_VMS = 1000;
const NAMES_SHOWN = 3;
const TESTED = PLATFORMS.filter(({ isTested }) => isTested);
/** Reported under the name of the engine */
const ENGINE_CHECK = "engine";

const CHECKS: Record<string, (facts: HostFacts) => Verdict> = {
  platform: (facts) =>
    facts.platform === "linux" && TESTED.some(({ node }) => node === facts.arch)
      ? pass(`linux ${TESTED.find(({ node }) => node === facts.arch)?.name}, kernel ${facts.hostKernel}`)
      : fail(`forkd runs on linux ${TESTED.map(({ name }) => name).join(" and ")}, this is ${facts.platform} ${facts.arch}.`),
  [ENGINE_CHECK]: ({ engine, ...facts }) => (engine.isUsable ? pass(engine.reason) : fail(engine.reason, apt(engine.packages, facts))),
  "guest-kernel": (facts) => (facts.guestKernel ? pass(facts.guestKernel) : fail("No guest kernel is installed.", "make setup")),
  accelerator: checkAccelerator,
  isolation: checkIsolation,
  agent: (facts) => (facts.agentBinary ? pass(facts.agentBinary) : fail("The guest agent is not built.", "make setup")),
  warden: (facts) => (facts.wardenBinary ? pass(facts.wardenBinary) : fail("The warden is not built.", "make setup")),
  mmdebstrap: (facts) =>
    facts.mmdebstrap ? pass(facts.mmdebstrap) : warn("Images cannot be built here; pull or import still work.", apt("mmdebstrap", facts)),
  sqfstar: (facts) =>
    facts.sqfstar ? pass(facts.sqfstar) : fail("Images cannot be made: the squashfs tools are missing.", apt("squashfs-tools", facts)),
  "disk-tools": checkDiskTools,
  "sub-ids": checkSubIds,
  "user-namespaces": checkUserNamespaces,
  confinement: checkConfinement,
  cgroup: checkGroup,
  memory: checkMemory,
  disk: checkDisk,
  reflink: (facts) => {
    if (facts.hasReflink === null) return warn(`Not tested: ${facts.home.root} cannot be written.`);
    return facts.hasReflink
      ? pass("Copies of memory images share their blocks.")
      : warn("This file system cannot share blocks; memory images are copied sparsely. Btrfs, or XFS made with reflink=1, can.");
  },
  home: checkHome,
  "socket-path": checkSocketPath,
  ptrace: checkPtrace,
  "vmm-fork": checkVmmFork,
  "page-scan": checkPageScan,
  limits: checkLimits,
  overcommit: (facts) =>
    facts.overcommit === 2
      ? warn("vm.overcommit_memory is 2: each fork is charged its full memory, so few fit.", "sudo sysctl -w vm.overcommit_memory=0")
      : pass(`vm.overcommit_memory is ${facts.overcommit ?? "not set"}`),
};

/** Every check, in the order of the report */
export function runChecks(facts: HostFacts): Check[] {
  return Object.entries(CHECKS).map(([id, check]) => ({ id: id === ENGINE_CHECK ? facts.engine.name : id, ...check(facts) }));
}

function checkAccelerator(facts: HostFacts): Verdict {
  if (facts.probeFailure !== null)
    return fail(`The probe failed: ${facts.probeFailure}`, "'make setup' builds what it needs; 'accelerator = tcg' does without it.");
  if (!facts.accelerator) return warn(`Not probed: that takes ${facts.engine.title} and a guest kernel.`);
  const { accelerator, reason, advice } = facts.accelerator;
  if (accelerator === "kvm") return advice === undefined ? pass(`kvm: ${reason}`) : fail(`kvm: ${reason}`, advice);
  return warn(`tcg, ${facts.engine.title}'s translator: ${reason}`, advice);
}

function checkIsolation(facts: HostFacts): Verdict {
  const { accelerator, isolationPolicy: policy } = facts;
  if (!accelerator) return warn("Not known before the accelerator is probed.");
  if (accelerator.accelerator === "kvm") return checkEmulated(facts);
  if (policy === "kvm")
    return fail(
      "emulated, and isolation = kvm forbids that: no VM starts.",
      accelerator.advice ?? "Set isolation = auto: VMs run emulated, for development, CI and code you trust.",
    );
  return warn(`emulated: ${facts.engine.title}'s translator is not a security boundary. Use it for development, CI and code you trust.`);
}

/** With KVM: snapshots that were made without it are still emulated */
function checkEmulated({ emulatedSnapshots: tags, isolationPolicy: policy }: HostFacts): Verdict {
  const wall = "kvm: the processor separates guests from the host";
  if (tags.length === 0) return pass(`${wall}.`);
  const those = `${wall}, except for snapshots that were made without KVM (${listOf(tags)})`;
  return policy === "any"
    ? warn(`${those}: isolation = any lets their forks run emulated, which is not a security boundary.`, "Make them again on this host.")
    : pass(`${those}: isolation = ${policy} refuses their forks. Make them again on this host.`);
}

function listOf(names: readonly string[]): string {
  const rest = names.length - NAMES_SHOWN;
  return `${names.slice(0, NAMES_SHOWN).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}

function checkDiskTools(facts: HostFacts): Verdict {
  if (!facts.mkfs) return warn("mkfs.ext4 is missing; snapshots cannot have a disk.", apt("e2fsprogs", facts));
  const { name, path, packages } = facts.engine.diskTool;
  if (path === null) return warn(`${name} is missing; the layers of a disk cannot be made into one.`, apt(packages, facts));
  return pass(`${facts.mkfs}, ${path}`);
}

function checkSubIds(facts: HostFacts): Verdict {
  if (facts.uid === 0) return pass("Not needed by root.");
  const otherwise = facts.fakechroot
    ? `images are built with fakechroot, unconfined: their packages and commands can do what ${facts.user} can, and \`confinement = required\` refuses that`
    : "images cannot be built without root";
  if (!facts.newuidmap) return warn(`newuidmap is missing; ${otherwise}.`, apt("uidmap", facts));
  if (facts.hasSubIds) return pass(`/etc/subuid and /etc/subgid give ${facts.user} a range.`);
  return warn(
    `${facts.user} has no range of 65536 in /etc/subuid and /etc/subgid; ${otherwise}.`,
    `sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ${facts.user}`,
  );
}

function checkUserNamespaces(facts: HostFacts): Verdict {
  if (facts.userNamespaces.usable) return pass("User namespaces can be made.");
  const why = `User namespaces cannot be made (${facts.userNamespaces.reason})`;
  return warn(
    `${why}${facts.uid === 0 ? "." : ": images cannot be built from packages."}`,
    "sudo sysctl -w kernel.unprivileged_userns_clone=1",
  );
}

function checkConfinement(facts: HostFacts): Verdict {
  const { confinement } = facts;
  if (!confinement) return warn(`Not tried: that takes ${facts.engine.title} and a guest kernel.`);
  if (confinement.kind === "namespaces")
    return pass(`Each VMM sees only its own files, in namespaces of its own. ${callsOf(confinement.calls, facts.engine.title)}`);
  return warn(`A VMM that is broken into can do what ${facts.user} can: ${confinement.reason}`, fixConfinement(facts, confinement.reason));
}

function callsOf({ filter, reason }: CallFilter, engine: string): string {
  return filter === "deny"
    ? `System calls: all but a list of forbidden ones: ${reason}.`
    : `System calls: only the list of those that this ${engine} needs.`;
}

/** Names the settings that forbid it, else the reason of the probe */
function fixConfinement({ namespaceSettings: { clone, most, apparmor } }: HostFacts, reason: string): string {
  if (clone === 0) return "sudo sysctl -w kernel.unprivileged_userns_clone=1";
  if (most === 0) return "sudo sysctl -w user.max_user_namespaces=10000";
  if (apparmor === 1) return "Let AppArmor allow user namespaces to the warden: see docs/operations.md, Confinement.";
  if (reason.includes("lies in a folder of the system"))
    return "Set FORKD_HOME and FORKD_RUN to folders outside of /usr, /bin, /sbin and /lib.";
  if (reason.includes(basename(installation.readOnlyPreload))) return "make setup";
  return "docs/operations.md, Confinement, lists what forbids it and what to do.";
}

function checkGroup(facts: HostFacts): Verdict {
  const { path, controllers, reason } = facts.group;
  if (reason === null) return pass(`${path} is delegated with ${controllers.join(", ")}.`);
  const missing = CONTROLLERS.filter((name) => !controllers.includes(name));
  return warn(
    `Limits of ${missing.join(", ")} cannot be applied to sandboxes: ${reason}.`,
    "systemd-run --user --scope -p Delegate=yes forkd up",
  );
}

function checkMemory(facts: HostFacts): Verdict {
  const mib = facts.memoryAvailableMiB;
  if (mib === null) return warn("Could not be read from /proc/meminfo.");
  const text = `${mib} MiB available`;
  if (mib >= 2048) return pass(text);
  return mib >= 768 ? warn(`${text}: enough for one small parent and a few forks.`) : fail(`${text}: not enough to boot a parent.`);
}

function checkDisk(facts: HostFacts): Verdict {
  const bytes = facts.diskFreeBytes;
  if (bytes === null) return warn(`Free space of ${facts.home.root} could not be read.`);
  const text = `${(bytes / GIB).toFixed(1)} GiB free for ${facts.home.root}`;
  if (bytes >= 5 * GIB) return pass(text);
  const fix = "Free space there, or set FORKD_HOME to a larger disk.";
  return bytes >= GIB ? warn(`${text}; 5 GiB are comfortable.`, fix) : fail(`${text}; at least 1 GiB is needed.`, fix);
}

function checkHome(facts: HostFacts): Verdict {
  const { root, owner, mode } = facts.home;
  if (owner === null || mode === null) return pass(`${root} will be made when it is first needed.`);
  if (owner !== facts.uid) return fail(`${root} belongs to uid ${owner}, not to ${facts.user}.`, `sudo chown -R ${facts.user} ${root}`);
  if ((mode & 0o022) !== 0) return fail(`${root} can be written by others (mode ${mode.toString(8)}).`, `chmod go-w ${root}`);
  return pass(`${root} belongs to ${facts.user}.`);
}

function checkSocketPath(facts: HostFacts): Verdict {
  if (Buffer.byteLength(facts.home.run) <= MAX_RUN_BYTES) return pass(facts.home.run);
  return fail(`${facts.home.run} is too long for Unix sockets (limit ${MAX_RUN_BYTES} bytes).`, "export FORKD_RUN=/tmp/forkd-run");
}

function checkVmmFork({ accelerator, confinement, cloneObstacle }: HostFacts): Verdict {
  if (accelerator?.accelerator === "kvm") return checkFrozenCopy(accelerator.freezeObstacle);
  const obstacle = confinement?.kind === "none" ? "VMMs are not confined" : cloneObstacle;
  if (obstacle !== null) return warn(`Forks load the snapshot, which takes longer than a copy of a VMM: ${obstacle}.`);
  return pass("Forks are copies of a VMM that waits, once a snapshot was forked twice.");
}

/** With KVM forks load the snapshot, but a VMM can make a copy of itself that only holds the memory */
function checkFrozenCopy(obstacle: string | null | undefined): Verdict {
  if (obstacle === null) return pass("Forks load the snapshot, as always with KVM. Branches are stored from a frozen copy of the VMM.");
  const why = obstacle === undefined ? "frozen copies are tried only with accelerator = auto" : `a frozen copy was tried: ${obstacle}`;
  return warn(`Branches read the memory of the running VMM, so a guest that writes fast has a longer pause: ${why.replace(/\.$/, "")}.`);
}

function checkPtrace(facts: HostFacts): Verdict {
  const scope = facts.ptraceScope ?? 0;
  if (scope === 0) return pass(facts.ptraceScope === null ? "yama is not active." : "kernel.yama.ptrace_scope is 0.");
  if (facts.uid === 0 && scope < 3) return pass(`kernel.yama.ptrace_scope is ${scope}; root may read guest memory.`);
  const text = `kernel.yama.ptrace_scope is ${scope}`;
  if (scope === 1) return pass(`${text}: only a VMM's parent may read its memory, which is what forkd does.`);
  return fail(`${text}: the memory of a VMM cannot be read, so nothing can be branched.`, "sudo sysctl -w kernel.yama.ptrace_scope=1");
}

function checkPageScan(facts: HostFacts): Verdict {
  const [major = 0, minor = 0] = facts.hostKernel.split(".").map((part) => Number.parseInt(part, 10));
  if (major > 6 || (major === 6 && minor >= 7)) return pass("PAGEMAP_SCAN: only populated pages are visited.");
  if (facts.hasSoftDirty) return pass("soft-dirty bits: changed pages are known, all of the page map is read.");
  return warn("Neither PAGEMAP_SCAN nor soft-dirty bits: pages are compared, so branch pauses are longer.");
}

function checkLimits(facts: HostFacts): Verdict {
  const { openFiles, processes } = facts.limits;
  const low = [
    ...(openFiles < OPEN_FILES_100_VMS ? [`open files ${openFiles} (want ${OPEN_FILES_100_VMS})`] : []),
    ...(processes < PROCESSES_100_VMS ? [`processes ${processes} (want ${PROCESSES_100_VMS})`] : []),
  ];
  if (low.length === 0) return pass("Open files and processes suffice for 100 VMs.");
  const fix = `Set nofile ${OPEN_FILES_100_VMS} and nproc ${PROCESSES_100_VMS} for ${facts.user} in /etc/security/limits.conf.`;
  return warn(`Too low for 100 VMs: ${low.join(", ")}.`, fix);
}

function apt(pkg: string, facts: Pick<HostFacts, "uid">): string {
  return `${facts.uid === 0 ? "" : "sudo "}apt-get install --yes ${pkg}`;
}

function pass(reason: string): Verdict {
  return { status: "pass", reason };
}

function warn(reason: string, fix?: string): Verdict {
  return fix === undefined ? { status: "warn", reason } : { status: "warn", reason, fix };
}

function fail(reason: string, fix?: string): Verdict {
  return fix === undefined ? { status: "fail", reason } : { status: "fail", reason, fix };
}

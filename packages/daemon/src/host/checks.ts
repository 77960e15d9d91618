// The checks of doctor: pure functions from host facts to a verdict, its reason and the command that mends it.

import { CONTROLLERS } from "./own-group.ts";

import type { HostFacts } from "./host-facts.ts";

export type CheckStatus = "pass" | "warn" | "fail";

export type Check = {
  id: string;
  status: CheckStatus;
  reason: string;
  /** exact command or setting that mends it; absent when nothing has to or can be done */
  fix?: string;
};

type Verdict = Omit<Check, "id">;

const GIB = 1024 ** 3;
const MIN_QEMU = [7, 2] as const;
/** Longest name forkd puts below the run folder: a sandbox id, a slash and a socket name */
const SOCKET_NAME_BYTES = 40;
const SOCKET_PATH_BYTES = 107;
/** 100 VMs: files the daemon holds for each, and QEMU's threads for each */
const OPEN_FILES_100_VMS = 2048;
const PROCESSES_100_VMS = 1000;

const CHECKS: Record<string, (facts: HostFacts) => Verdict> = {
  platform: (facts) =>
    facts.platform === "linux" && facts.arch === "x64"
      ? pass(`linux x86_64, kernel ${facts.hostKernel}`)
      : fail(`forkd runs on linux x86_64, this is ${facts.platform} ${facts.arch}.`),
  qemu: checkQemu,
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
    if (facts.hasReflink === null) return warn(`Could not be tried: ${facts.home.root} cannot be written.`);
    return facts.hasReflink
      ? pass("Copies of memory images share their blocks.")
      : warn("This file system cannot share blocks; memory images are copied sparsely. Btrfs, or XFS made with reflink=1, can.");
  },
  home: checkHome,
  "socket-path": checkSocketPath,
  ptrace: checkPtrace,
  "page-scan": checkPageScan,
  limits: checkLimits,
  overcommit: (facts) =>
    facts.overcommit === 2
      ? warn("vm.overcommit_memory is 2: each fork is charged its full memory, so few fit.", "sudo sysctl -w vm.overcommit_memory=0")
      : pass(`vm.overcommit_memory is ${facts.overcommit ?? "not set"}`),
};

/** Every check, in the order a reader wants them */
export function runChecks(facts: HostFacts): Check[] {
  return Object.entries(CHECKS).map(([id, check]) => ({ id, ...check(facts) }));
}

function checkQemu(facts: HostFacts): Verdict {
  const fix = apt("qemu-system-x86", facts);
  if (!facts.qemu) return fail("qemu-system-x86_64 is not in PATH.", fix);
  const { path, version } = facts.qemu;
  if (!version) return fail(`${path} --version gave no version.`, fix);
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const isEnough = major > MIN_QEMU[0] || (major === MIN_QEMU[0] && minor >= MIN_QEMU[1]);
  return isEnough ? pass(`${version}, ${path}`) : fail(`${path} is ${version}; forkd needs ${MIN_QEMU.join(".")} or newer.`, fix);
}

function checkAccelerator(facts: HostFacts): Verdict {
  if (facts.probeFailure !== null) return fail(`The probe failed: ${facts.probeFailure}`, "make setup");
  if (!facts.accelerator) return warn("Not probed: that takes QEMU and a guest kernel.");
  const { accelerator, reason } = facts.accelerator;
  return accelerator === "kvm" ? pass(`kvm: ${reason}`) : warn(`tcg, QEMU's translator: ${reason}`);
}

function checkIsolation(facts: HostFacts): Verdict {
  if (facts.accelerator?.accelerator === "kvm") return pass("kvm: the processor separates guests from the host.");
  if (!facts.accelerator) return warn("Not known before the accelerator is probed.");
  return warn("emulated: QEMU's translator is not a security boundary. Use it for development, CI and code you trust.");
}

function checkDiskTools(facts: HostFacts): Verdict {
  if (!facts.mkfs) return warn("mkfs.ext4 is missing; snapshots cannot have a disk.", apt("e2fsprogs", facts));
  if (!facts.qemuImg) return warn("qemu-img is missing; the layers of a disk cannot be made into one.", apt("qemu-utils", facts));
  return pass(`${facts.mkfs}, ${facts.qemuImg}`);
}

function checkSubIds(facts: HostFacts): Verdict {
  if (facts.uid === 0) return pass("Not needed by root.");
  if (!facts.newuidmap) return warn("newuidmap is missing; images cannot be built without root.", apt("uidmap", facts));
  if (facts.hasSubIds) return pass(`/etc/subuid and /etc/subgid give ${facts.user} a range.`);
  return warn(
    `${facts.user} has no range of 65536 in /etc/subuid and /etc/subgid; images cannot be built without root.`,
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
  if (!confinement) return warn("Not tried: that takes QEMU and a guest kernel.");
  if (confinement.kind === "namespaces") return pass("Each VMM sees only its own files, in namespaces of its own.");
  return warn(`A VMM that is broken into can do what ${facts.user} can: ${confinement.reason}`, mendConfinement(facts));
}

/** What most often forbids it */
function mendConfinement({ namespaceSettings: { clone, most, apparmor } }: HostFacts): string | undefined {
  if (clone === 0) return "sudo sysctl -w kernel.unprivileged_userns_clone=1";
  if (most === 0) return "sudo sysctl -w user.max_user_namespaces=10000";
  return apparmor === 1 ? "Let AppArmor allow user namespaces to the warden: see docs/operations.md, Confinement." : undefined;
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
  const length = Buffer.byteLength(facts.home.run) + 1 + SOCKET_NAME_BYTES;
  if (length <= SOCKET_PATH_BYTES) return pass(facts.home.run);
  return fail(`${facts.home.run} is too long for Unix sockets (limit ${SOCKET_PATH_BYTES} bytes).`, "export FORKD_RUN=/tmp/forkd-run");
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

function apt(pkg: string, facts: HostFacts): string {
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

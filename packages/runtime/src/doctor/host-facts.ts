// Facts about this host for doctor. Read-only; decides nothing.

import { constants, type Stats } from "node:fs";
import { copyFile, mkdtemp, open, readFile, rm, stat, statfs, writeFile } from "node:fs/promises";
import { release } from "node:os";
import { dirname, join } from "node:path";
import { messageOf } from "../errors.ts";
import { SnapshotStore } from "../snapshot/store.ts";
import { executable, findProgram } from "../util/find-program.ts";
import { userName } from "../util/user-name.ts";
import { HOST_PLACES, lookAtOwnGroup, type OwnGroup } from "../host/own-group.ts";
import { run } from "../host/command.ts";

import type { Home } from "../home.ts";
import type { GuestKernel } from "../guest-kernel/guest-kernel.ts";
import type { AcceleratorChoice, ConfinementState, EngineLook } from "../vmm/driver.ts";
import type { IsolationPolicy } from "../host/accelerators.ts";
import type { Installation } from "../host/installation.ts";

/** null: missing or unknown */
export type HostFacts = {
  platform: string;
  arch: string;
  uid: number;
  user: string;
  hostKernel: string;
  engine: EngineLook;
  /** of VMMs */
  confinement: ConfinementState | null;
  accelerator: AcceleratorChoice | null;
  /** why these two could not be probed although all requirements exist */
  probeFailure: string | null;
  /** the setting */
  isolationPolicy: IsolationPolicy;
  /** tags of stored snapshots that were made without KVM: their forks are emulated on every host */
  emulatedSnapshots: string[];
  guestKernel: string | null;
  mmdebstrap: string | null;
  sqfstar: string | null;
  newuidmap: string | null;
  /** builds images without confinement on hosts without subordinate ids */
  fakechroot: string | null;
  mkfs: string | null;
  /** whether /etc/subuid and /etc/subgid give this user a range */
  hasSubIds: boolean;
  userNamespaces: { usable: boolean; reason: string };
  /** settings that can forbid them to an ordinary user */
  namespaceSettings: { clone: number | null; most: number | null; apparmor: number | null };
  /** of this process; a daemon that it starts has the same */
  group: OwnGroup;
  memoryAvailableMiB: number | null;
  diskFreeBytes: number | null;
  hasReflink: boolean | null;
  /** kernel.yama.ptrace_scope; null without yama */
  ptraceScope: number | null;
  /** why a process cannot be cloned with its threads here; null: it can */
  cloneObstacle: string | null;
  agentBinary: string | null;
  wardenBinary: string | null;
  hasSoftDirty: boolean;
  home: { root: string; run: string; owner: number | null; mode: number | null };
  limits: { openFiles: number; processes: number };
  overcommit: number | null;
};

export type FactSources = {
  engine: EngineLook;
  installation: Installation;
  isolationPolicy: IsolationPolicy;
  /** null when none is installed */
  guestKernel: GuestKernel | null;
  /** starts a VMM to see whether it can be confined */
  confine: () => Promise<ConfinementState>;
  /** boots a tiny guest to see whether KVM really works */
  probe: (guestKernel: GuestKernel, confinement: ConfinementState) => Promise<AcceleratorChoice>;
};

export async function gatherHostFacts(home: Home, sources: FactSources, signal?: AbortSignal): Promise<HostFacts> {
  const uid = process.getuid?.() ?? 0;
  const user = userName();
  const { engine, guestKernel, installation } = sources;
  const [mmdebstrap, sqfstar, newuidmap, fakechroot, fakeroot, mkfs] = await Promise.all([
    findProgram("mmdebstrap"),
    findProgram("sqfstar"),
    findProgram("newuidmap"),
    findProgram("fakechroot"),
    findProgram("fakeroot"),
    findProgram("mkfs.ext4"),
  ]);
  const place = await nearestExisting(home.root);
  return {
    platform: process.platform,
    arch: process.arch,
    uid,
    user,
    hostKernel: release(),
    engine,
    ...(await tryProbe(sources, signal)),
    isolationPolicy: sources.isolationPolicy,
    emulatedSnapshots: await emulatedIn(home),
    guestKernel: guestKernel && `${guestKernel.release}, ${guestKernel.vmlinuz}`,
    mmdebstrap,
    sqfstar,
    newuidmap,
    fakechroot: fakeroot && fakechroot,
    mkfs,
    hasSubIds: (await hasRange("/etc/subuid", user, uid)) && (await hasRange("/etc/subgid", user, uid)),
    userNamespaces: await tryUserNamespace(signal),
    namespaceSettings: {
      clone: await readNumber("/proc/sys/kernel/unprivileged_userns_clone"),
      most: await readNumber("/proc/sys/user/max_user_namespaces"),
      apparmor: await readNumber("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
    },
    group: await lookAtOwnGroup(HOST_PLACES),
    memoryAvailableMiB: await readMemoryAvailable(),
    diskFreeBytes: await freeBytes(place),
    hasReflink: await tryReflink(place),
    ptraceScope: await readNumber("/proc/sys/kernel/yama/ptrace_scope"),
    cloneObstacle: await cloneObstacle(installation.warden),
    agentBinary: await executable(installation.agent),
    wardenBinary: await executable(installation.warden),
    hasSoftDirty: await readSoftDirty(),
    home: { root: home.root, run: home.run, ...(await ownership(home.root)) },
    limits: await readLimits(),
    overcommit: await readNumber("/proc/sys/vm/overcommit_memory"),
  };
}

async function tryProbe(
  sources: FactSources,
  signal: AbortSignal | undefined,
): Promise<Pick<HostFacts, "accelerator" | "confinement" | "probeFailure">> {
  // on a host without a store, none is made
  if (!sources.engine.isFound || !sources.guestKernel) return { accelerator: null, confinement: null, probeFailure: null };
  let confinement: ConfinementState | null = null;
  try {
    confinement = await sources.confine();
    const accelerator = await sources.probe(sources.guestKernel, confinement);
    return { accelerator, confinement, probeFailure: null };
  } catch (error) {
    signal?.throwIfAborted();
    return { accelerator: null, confinement, probeFailure: messageOf(error) };
  }
}

async function emulatedIn(home: Home): Promise<string[]> {
  const made = (await new SnapshotStore(home).list()).map(({ manifest }) => manifest);
  return made.filter(({ shape }) => shape.accelerator === "tcg").map(({ tag }) => tag);
}

async function hasRange(file: string, user: string, uid: number): Promise<boolean> {
  const text = await readText(file);
  return text.split("\n").some((line) => {
    const [name, , count] = line.split(":");
    return (name === user || name === String(uid)) && Number(count) >= 65_536;
  });
}

async function tryUserNamespace(signal: AbortSignal | undefined): Promise<HostFacts["userNamespaces"]> {
  try {
    await run(["unshare", "--user", "--map-root-user", "--mount", "true"], { signal, timeoutMs: 10_000 });
    return { usable: true, reason: "unshare works" };
  } catch (error) {
    signal?.throwIfAborted();
    return { usable: false, reason: messageOf(error).split("\n").at(-1) ?? "" };
  }
}

/** By cloning a process with two threads; without the warden nothing is known */
async function cloneObstacle(warden: string): Promise<string | null> {
  if ((await executable(warden)) === null) return "the warden is not built";
  try {
    await run([warden, "--try-clone"]);
    return null;
  } catch (error) {
    return messageOf(error).replace(/\.$/, "");
  }
}

async function readMemoryAvailable(): Promise<number | null> {
  const kib = /^MemAvailable:\s+(\d+) kB/m.exec(await readText("/proc/meminfo"))?.[1];
  return kib ? Math.floor(Number(kib) / 1024) : null;
}

async function nearestExisting(path: string): Promise<string> {
  for (let dir = path; ; dir = dirname(dir)) {
    if (await statOrNull(dir)) return dir;
    if (dir === dirname(dir)) return dir;
  }
}

async function freeBytes(dir: string): Promise<number | null> {
  const info = await statfs(dir).catch(() => null);
  return info && info.bavail * info.bsize;
}

/** By a trial: the name of the file system does not show its options */
async function tryReflink(dir: string): Promise<boolean | null> {
  let temp: string;
  try {
    temp = await mkdtemp(join(dir, ".forkd-doctor-"));
  } catch {
    return null;
  }
  try {
    await writeFile(join(temp, "a"), Buffer.alloc(4096, 1));
    await copyFile(join(temp, "a"), join(temp, "b"), constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch {
    return false;
  } finally {
    await rm(temp, { recursive: true, force: true });
  }
}

/** Every page of a young process is soft-dirty (bit 55) where the host kernel keeps that bit */
async function readSoftDirty(): Promise<boolean> {
  const start = /^([0-9a-f]+)-[0-9a-f]+ .*\[stack\]/m.exec(await readText("/proc/self/maps"))?.[1];
  const end = /^[0-9a-f]+-([0-9a-f]+) .*\[stack\]/m.exec(await readText("/proc/self/maps"))?.[1];
  if (!start || !end) return false;
  const file = await open("/proc/self/pagemap").catch(() => null);
  if (!file) return false;
  try {
    const pages = (Number.parseInt(end, 16) - Number.parseInt(start, 16)) / 4096;
    const buffer = Buffer.alloc(Math.min(pages, 4096) * 8);
    const { bytesRead } = await file.read(buffer, 0, buffer.length, (Number.parseInt(start, 16) / 4096) * 8);
    for (let at = 0; at + 8 <= bytesRead; at += 8) {
      if ((buffer.readUInt32LE(at + 4) & 0x0080_0000) !== 0) return true;
    }
    return false;
  } finally {
    await file.close();
  }
}

async function ownership(path: string): Promise<{ owner: number | null; mode: number | null }> {
  const info = await statOrNull(path);
  return { owner: info?.uid ?? null, mode: info ? info.mode & 0o777 : null };
}

/** Hard limits: the daemon can raise the soft ones */
async function readLimits(): Promise<HostFacts["limits"]> {
  const text = await readText("/proc/self/limits");
  const hard = (name: string): number => {
    const value = new RegExp(`^${name}\\s+\\S+\\s+(\\S+)`, "m").exec(text)?.[1];
    return value === undefined || value === "unlimited" ? Infinity : Number(value);
  };
  return { openFiles: hard("Max open files"), processes: hard("Max processes") };
}

async function readNumber(path: string): Promise<number | null> {
  const text = (await readText(path)).trim();
  return text === "" ? null : Number(text);
}

/** "" for a missing file: this host lacks the feature */
async function readText(path: string): Promise<string> {
  return readFile(path, "utf8").catch(() => "");
}

async function statOrNull(path: string): Promise<Stats | null> {
  return stat(path).catch(() => null);
}

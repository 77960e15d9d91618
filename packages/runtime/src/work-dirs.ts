// Working folders of a runtime, and the warden of its VMs.

import { once } from "node:events";
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { connect } from "node:net";
import { basename, dirname, join } from "node:path";
import { ForkdError } from "./errors.ts";
import type { Home } from "./home.ts";
import { installation } from "./host/installation.ts";
import { hugeFolder, removeHugeFolder } from "./host/huge-pages.ts";
import { claimFolder, folderAgeMs, ownerOf } from "./host/owner.ts";
import { makeRunDir } from "./host/run-dirs.ts";
import { endVmmsOf, sweepRunDirs } from "./vmm/leftovers.ts";
import { Warden } from "./warden/warden.ts";
import { durableWarden, type WardenSource } from "./warden/source.ts";
import { writeFileAtomic } from "./util/atomic-file.ts";
import { isAlive } from "./util/process-id.ts";

/** A folder has no owner only while it is being created; an older one without an owner is abandoned */
const UNCLAIMED_MS = 60_000;

export type WorkDirs = {
  /** folders of VMs: sockets and logs */
  runDir: string;
  /** flat memory images */
  flatDir: string;
  /** flat memory images in huge pages; exists once there is one */
  hugeDir: string;
  /** folders of VMs that have a disk */
  vmsDir: string;
  warden: WardenSource;
  /** ends every VM and removes the folders */
  end: () => Promise<void>;
  /** leaves the VMs running for the next process; undefined when they end with this one */
  leave?: () => Promise<void>;
};

/** VMs end with this process, also when it is killed */
export async function ownWorkDirs(home: Home, hugepagesDir: string, onWarning: (message: string) => void): Promise<WorkDirs> {
  // Claim before the sweep: of two processes that start together at least one sees the other.
  const runDir = await makeRunDir(home.run);
  const flatDir = join(home.flat, basename(runDir));
  const vmsDir = join(home.vms, basename(runDir));
  const hugeDir = hugeFolder(hugepagesDir, flatDir);
  const remove = async (): Promise<void> => {
    await removeHugeFolder(hugeDir);
    for (const dir of [runDir, flatDir, vmsDir]) await rm(dir, { recursive: true, force: true });
  };
  try {
    for (const dir of [flatDir, vmsDir]) {
      await mkdir(dir, { mode: 0o700 });
      await claimFolder(dir);
    }
    const ended = await sweepRunDirs(home.run, runDir);
    if (ended > 0) onWarning(`Ended ${ended} VMM processes that an earlier run had left.`);
    for (const dir of [flatDir, vmsDir]) await sweepBeside(dir, hugepagesDir);
    const warden = await Warden.start({ binary: installation.warden });
    const end = async (): Promise<void> => {
      await warden.close();
      await remove();
    };
    return { runDir, flatDir, hugeDir, vmsDir, warden: async () => warden, end };
  } catch (error) {
    await remove();
    throw error;
  }
}

/**
 * VMs outlive this process, and the next process with the same store adopts them. The caller ensures that only one
 * process runs
 */
export async function durableWorkDirs(home: Home, hugepagesDir: string, onLost: (why: string) => void): Promise<WorkDirs> {
  const runDir = join(home.run, "daemon");
  const flatDir = join(home.flat, "daemon");
  const vmsDir = join(home.vms, "daemon");
  const hugeDir = hugeFolder(hugepagesDir, flatDir);
  for (const dir of [runDir, flatDir, vmsDir]) await mkdir(dir, { recursive: true, mode: 0o700 });
  await claimFor(home, runDir);
  for (const dir of [flatDir, vmsDir]) await sweepBeside(dir, hugepagesDir);
  let leaving = false;
  let wasLost = false;
  const open = async (): Promise<Warden> => {
    const found = await Warden.connect({
      binary: installation.warden,
      socket: join(runDir, "warden.sock"),
      log: join(runDir, "warden.log"),
    });
    // Only the connection to the warden was lost. Its VMs were given up at that moment, so end them.
    if (wasLost && found.adopted) await endChildrenOf(found);
    return found;
  };
  const warden = durableWarden(open, (why) => {
    wasLost = true;
    if (!leaving) onLost(why);
  });
  // A new warden has no children. A VMM that still runs is an orphan, and would never be ended.
  if (!(await warden().then((found) => found.adopted))) await endVmmsOf(runDir);
  return {
    runDir,
    flatDir,
    hugeDir,
    vmsDir,
    warden,
    end: async () => {
      leaving = true;
      await (await warden()).end();
      await removeHugeFolder(hugeDir);
      for (const dir of [runDir, flatDir, vmsDir]) await rm(dir, { recursive: true, force: true });
    },
    leave: async () => {
      leaving = true;
      await (await warden()).disconnect();
    },
  };
}

/** Refuses a run folder of another store, whose VMs may run without their daemon: this process must not end them */
async function claimFor(home: Home, runDir: string): Promise<void> {
  const mark = join(runDir, "home");
  const owner = await readFile(mark, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return home.root;
    throw error;
  });
  if (owner !== home.root && (await answers(join(runDir, "warden.sock"))))
    throw new ForkdError("DAEMON_RUNNING", `Cannot use ${runDir}: sandboxes of the store ${owner} run there.`, {
      hint: "Give each store a run folder of its own with FORKD_RUN.",
    });
  await writeFileAtomic(mark, home.root, "quick");
}

async function answers(socket: string): Promise<boolean> {
  const connection = connect(socket);
  try {
    await once(connection, "connect");
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ECONNREFUSED") return false;
    throw error;
  } finally {
    connection.destroy();
  }
}

/** Ends the processes of a warden, except those to keep; returns how many */
export async function endChildrenOf(warden: Warden, keep: ReadonlySet<number> = new Set()): Promise<number> {
  const others = (await warden.list()).filter(({ pid, running }) => running && !keep.has(pid));
  for (const { pid, startTime } of others) {
    const child = warden.adopt(pid, startTime);
    await child.kill("SIGKILL");
    await child.exited;
  }
  return others.length;
}

/** Removes sibling folders whose owner has ended */
async function sweepBeside(own: string, hugepagesDir: string): Promise<void> {
  for (const entry of await readdir(dirname(own), { withFileTypes: true })) {
    const dir = join(dirname(own), entry.name);
    if (dir === own || !entry.isDirectory() || !entry.name.startsWith("rt-")) continue;
    const owner = await ownerOf(dir);
    const isAbandoned = owner ? !(await isAlive(owner)) : (await folderAgeMs(dir)) > UNCLAIMED_MS;
    if (!isAbandoned) continue;
    // first: the name of this folder is derived from the other
    await removeHugeFolder(hugeFolder(hugepagesDir, dir));
    await rm(dir, { recursive: true, force: true });
  }
}

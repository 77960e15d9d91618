// The folders a runtime works in, and who is the parent of its VMs.

import { once } from "node:events";
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { connect } from "node:net";
import { basename, dirname, join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { installation } from "../host/installation.ts";
import { claimFolder, folderAgeMs, ownerOf } from "../host/owner.ts";
import { endVmmsOf, makeRunDir, sweepRunDirs } from "../host/run-dir.ts";
import { Warden } from "../memory/warden.ts";
import { durableWarden, type WardenSource } from "../memory/warden-source.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { isAlive } from "../util/process-id.ts";

/** A folder is without an owner only for the moment in which it is made */
const UNCLAIMED_MS = 60_000;

export type Workplace = {
  /** folders of VMs: sockets and logs */
  runDir: string;
  /** flat memory images */
  flatDir: string;
  /** folders of VMs that have a disk */
  vmsDir: string;
  warden: WardenSource;
  /** ends every VM and removes the folders */
  end: () => Promise<void>;
  /** leaves the VMs running for the next process; undefined where they end with this one */
  leave?: () => Promise<void>;
};

/** Everything ends with this process, also when it is killed */
export async function ownWorkplace(home: Home, onWarning: (message: string) => void): Promise<Workplace> {
  // claimed before looking for others: of two that start together at least one sees the other
  const runDir = await makeRunDir(home.run);
  const flatDir = join(home.flat, basename(runDir));
  const vmsDir = join(home.vms, basename(runDir));
  const remove = async (): Promise<void> => {
    for (const dir of [runDir, flatDir, vmsDir]) await rm(dir, { recursive: true, force: true });
  };
  try {
    for (const dir of [flatDir, vmsDir]) {
      await mkdir(dir, { mode: 0o700 });
      await claimFolder(dir);
    }
    const ended = await sweepRunDirs(home.run, runDir);
    if (ended > 0) onWarning(`Ended ${ended} VMM processes that an earlier run had left.`);
    for (const dir of [flatDir, vmsDir]) await sweepBeside(dir);
    const warden = await Warden.start({ binary: installation.warden });
    const end = async (): Promise<void> => {
      await warden.close();
      await remove();
    };
    return { runDir, flatDir, vmsDir, warden: async () => warden, end };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** VMs outlive this process; the next one of the same home finds them. The caller sees to it that there is only one at a time */
export async function durableWorkplace(home: Home, onLost: (why: string) => void): Promise<Workplace> {
  const runDir = join(home.run, "daemon");
  const flatDir = join(home.flat, "daemon");
  const vmsDir = join(home.vms, "daemon");
  for (const dir of [runDir, flatDir, vmsDir]) await mkdir(dir, { recursive: true, mode: 0o700 });
  await claimFor(home, runDir);
  for (const dir of [flatDir, vmsDir]) await sweepBeside(dir);
  let leaving = false;
  let wasLost = false;
  const open = async (): Promise<Warden> => {
    const found = await Warden.connect({
      binary: installation.warden,
      socket: join(runDir, "warden.sock"),
      log: join(runDir, "warden.log"),
    });
    // only the connection was lost, not the warden: its VMs were given up when that happened
    if (wasLost && found.adopted) await endChildrenOf(found);
    return found;
  };
  const warden = durableWarden(open, (why) => {
    wasLost = true;
    if (!leaving) onLost(why);
  });
  // with a warden that has just been started no VM can be alive; a process that escaped it would be nobody's
  if (!(await warden().then((found) => found.adopted))) await endVmmsOf(runDir);
  return {
    runDir,
    flatDir,
    vmsDir,
    warden,
    end: async () => {
      leaving = true;
      await (await warden()).end();
      for (const dir of [runDir, flatDir, vmsDir]) await rm(dir, { recursive: true, force: true });
    },
    leave: async () => {
      leaving = true;
      await (await warden()).disconnect();
    },
  };
}

/** VMs of another store may live in this run folder although their daemon does not: they are not ours to end */
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

/** Ends the processes of a warden, all but those to be kept; returns how many */
export async function endChildrenOf(warden: Warden, keep: ReadonlySet<number> = new Set()): Promise<number> {
  const others = (await warden.list()).filter(({ pid, running }) => running && !keep.has(pid));
  for (const { pid, startTime } of others) {
    const child = warden.adopt(pid, startTime);
    await child.kill("SIGKILL");
    await child.exited;
  }
  return others.length;
}

/** Removes the folders beside ours whose owner is gone */
async function sweepBeside(own: string): Promise<void> {
  for (const entry of await readdir(dirname(own), { withFileTypes: true })) {
    const dir = join(dirname(own), entry.name);
    if (dir === own || !entry.isDirectory() || !entry.name.startsWith("rt-")) continue;
    const owner = await ownerOf(dir);
    const isAbandoned = owner ? !(await isAlive(owner)) : (await folderAgeMs(dir)) > UNCLAIMED_MS;
    if (isAbandoned) await rm(dir, { recursive: true, force: true });
  }
}

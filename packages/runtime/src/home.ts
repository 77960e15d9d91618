// Folders of forkd: the store (FORKD_HOME) and the run folder for sockets.

import { access, constants, lstat, stat } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "./errors.ts";
import { checkPaths, makeFolder, reasonOf, storePaths, unusable } from "./paths.ts";
import { syncPath } from "./util/sync-path.ts";

export type Home = {
  /** store root, FORKD_HOME */
  root: string;
  images: string;
  guestKernels: string;
  snapshots: string;
  /** flat memory images, a cache */
  flat: string;
  /** disks of running VMs */
  vms: string;
  /** incomplete work; swept at start when its owner has ended */
  staging: string;
  /** small facts about the host, such as the result of the accelerator probe */
  cache: string;
  /** sockets and logs of running VMs; short path, see the 107-byte limit of Unix sockets */
  run: string;
};

/**
 * Paths from FORKD_HOME and FORKD_RUN. Defaults: /var/lib/forkd for root, ~/.local/share/forkd for other users, and the
 * run folder that `storePaths` derives
 */
export function resolveHome(env: NodeJS.ProcessEnv = process.env): Home {
  const { home: root, run } = storePaths(env);
  return {
    root,
    images: join(root, "images"),
    guestKernels: join(root, "guest-kernels"),
    snapshots: join(root, "snapshots"),
    flat: join(root, "flat"),
    vms: join(root, "vms"),
    staging: join(root, "staging"),
    cache: join(root, "cache"),
    run,
  };
}

/** Creates the folders. Rejects a home that is not usable or that another user could change */
export async function prepareHome(home: Home): Promise<Home> {
  checkPaths({ home: home.root, run: home.run });
  let made = false;
  for (const dir of [home.root, home.images, home.guestKernels, home.snapshots, home.flat, home.vms, home.staging, home.cache])
    made = (await makeFolder(dir, "FORKD_HOME")) || made;
  // a new entry is durable only after its folder is synced
  if (made) await syncPath(home.root);
  await makeFolder(home.run, "FORKD_RUN");
  await checkWritable(home.root, "FORKD_HOME");
  await checkWritable(home.run, "FORKD_RUN");
  const uid = process.getuid?.() ?? 0;
  for (const dir of [home.root, home.run]) {
    const info = await stat(dir);
    // reject a link owned by another user: in a world-writable folder it can point anywhere
    if ((await lstat(dir)).uid !== uid) throw new ForkdError("HOME_UNSAFE", `Cannot use ${dir}: it is a link of another user.`);
    if (info.uid !== uid || (info.mode & 0o022) !== 0) {
      throw new ForkdError("HOME_UNSAFE", `Cannot use ${dir}: it belongs to uid ${info.uid} with mode ${(info.mode & 0o777).toString(8)}.`);
    }
  }
  return home;
}

/** Checked separately: in a store that has become read-only all folders exist, so makeFolder() does not fail */
async function checkWritable(dir: string, variable: "FORKD_HOME" | "FORKD_RUN"): Promise<void> {
  try {
    await access(dir, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw unusable(variable, dir, reasonOf(error), error);
  }
}

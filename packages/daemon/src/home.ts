// Where forkd keeps things: the store (FORKD_HOME) and the short-lived runtime folder for sockets.

import { lstat, mkdir, stat } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { ForkdError } from "./errors.ts";

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
  /** half-made things; emptied at start when their owner is gone */
  staging: string;
  /** small facts worth remembering per host, such as the accelerator probe */
  cache: string;
  /** sockets and logs of running VMs; short path, see the 107-byte limit of Unix sockets */
  run: string;
};

/** FORKD_HOME, or /var/lib/forkd for root and ~/.local/share/forkd for everyone else */
export function resolveHome(env: NodeJS.ProcessEnv = process.env): Home {
  const uid = process.getuid?.() ?? 0;
  const dataHome = env["XDG_DATA_HOME"] || join(homedir(), ".local", "share");
  const root = env["FORKD_HOME"] || (uid === 0 ? "/var/lib/forkd" : join(dataHome, "forkd"));
  const runBase = env["FORKD_RUN"] || (env["XDG_RUNTIME_DIR"] ? join(env["XDG_RUNTIME_DIR"], "forkd") : join(tmpdir(), `forkd-${uid}`));
  return {
    root,
    images: join(root, "images"),
    guestKernels: join(root, "guest-kernels"),
    snapshots: join(root, "snapshots"),
    flat: join(root, "flat"),
    vms: join(root, "vms"),
    staging: join(root, "staging"),
    cache: join(root, "cache"),
    run: runBase,
  };
}

/** Makes the folders, and refuses a home that somebody else could change */
export async function prepareHome(home: Home): Promise<Home> {
  for (const dir of [home.root, home.images, home.guestKernels, home.snapshots, home.flat, home.vms, home.staging, home.cache, home.run]) {
    await mkdir(dir, { recursive: true, mode: 0o700 });
  }
  const uid = process.getuid?.() ?? 0;
  for (const dir of [home.root, home.run]) {
    const info = await stat(dir);
    // somebody else's link in a folder that all can write to leads where they want
    if ((await lstat(dir)).uid !== uid) throw new ForkdError("HOME_UNSAFE", `Cannot use ${dir}: it is a link of somebody else.`);
    if (info.uid !== uid || (info.mode & 0o022) !== 0) {
      throw new ForkdError("HOME_UNSAFE", `Cannot use ${dir}: it belongs to uid ${info.uid} with mode ${(info.mode & 0o777).toString(8)}.`);
    }
  }
  return home;
}

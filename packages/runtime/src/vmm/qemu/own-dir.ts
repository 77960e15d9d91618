// The only folder that a VMM can write. It is a subfolder of the VM's folder, so that a compromised VMM cannot reach
// sockets and logs.

import { constants } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../../errors.ts";
import type { StartedBy } from "../driver.ts";

/** Upper bound; some hundreds of KiB are usual */
const MAX_DEVICE_STATE = 256 * 1024 * 1024;

export function ownDir(dir: string): string {
  return join(dir, "vmm");
}

export function consoleLog(dir: string): string {
  return join(ownDir(dir), "console.log");
}

export function deviceStateFile(dir: string): string {
  return join(ownDir(dir), "device.state");
}

/**
 * State file of a VMM that has it open, because it writes to no path. Its name shows a later process that the VM can be
 * cloned, and how it started
 */
export function openStateFile(dir: string, startedBy: StartedBy): string {
  return join(ownDir(dir), startedBy === "clone" ? "clone.state" : "restored.state");
}

/** Empty file that a clonable VMM has at the descriptor for further layers, until it needs one */
export function spareFile(dir: string): string {
  return join(ownDir(dir), "spare");
}

/** takeDeviceState() for such a VMM. QEMU appends each state to the file, and the truncated earlier ones read as zeroes */
export async function takeOpenState(path: string, to: string): Promise<void> {
  const bytes = await readState(path);
  const start = bytes.findIndex((byte) => byte !== 0);
  await using file = await open(to, "wx", 0o600);
  await file.writeFile(bytes.subarray(Math.max(0, start)));
}

/** Copies the state, because the VMM could still change the original; rejects anything but a regular file */
export async function takeDeviceState(dir: string, to: string): Promise<void> {
  const path = deviceStateFile(dir);
  const bytes = await readState(path);
  await using file = await open(to, "wx", 0o600);
  await file.writeFile(bytes);
  await rm(path, { force: true });
}

async function readState(path: string): Promise<Buffer> {
  await using from = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const info = await from.stat();
  if (!info.isFile() || info.size > MAX_DEVICE_STATE)
    throw new ForkdError("VMM_FAILED", `Cannot use the device state ${path}: it is not a regular file, or too long.`);
  const bytes = Buffer.alloc(info.size);
  let filled = 0;
  while (filled < info.size) {
    const { bytesRead } = await from.read(bytes, filled, info.size - filled, filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return bytes.subarray(0, filled);
}

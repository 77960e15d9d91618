// The one folder that a VMM writes in. It lies in the VM's folder, whose sockets and logs a VMM that was broken into must not reach.

import { constants } from "node:fs";
import { open, rm, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../../errors.ts";

/** Some hundreds of KiB are usual */
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

/** A copy, and never the file itself, which the VMM could go on to change; what is no ordinary file is not looked into */
export async function takeDeviceState(dir: string, to: string): Promise<void> {
  const path = deviceStateFile(dir);
  await using from = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const info = await from.stat();
  if (!info.isFile() || info.size > MAX_DEVICE_STATE)
    throw new ForkdError("VMM_FAILED", `Cannot use the device state ${path}: it is no ordinary file, or too long.`);
  await copy(from, info.size, to);
  await rm(path, { force: true });
}

async function copy(from: FileHandle, size: number, to: string): Promise<void> {
  const bytes = Buffer.alloc(size);
  let filled = 0;
  while (filled < size) {
    const { bytesRead } = await from.read(bytes, filled, size - filled, filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  await using file = await open(to, "wx", 0o600);
  await file.writeFile(bytes.subarray(0, filled));
}

// Detection of QEMU and its version.

import { access, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ForkdError } from "../../errors.ts";
import { run } from "../../host/command.ts";
import { PLATFORM } from "../../host/platform.ts";
import { findProgram } from "../../util/find-program.ts";
import { compareVersions } from "./version.ts";

export const PROGRAM = `qemu-system-${PLATFORM.name}`;
/** Debian package of the program */
export const PROGRAM_PACKAGE: string = { x86_64: "qemu-system-x86", aarch64: "qemu-system-arm" }[PLATFORM.name];
export const OLDEST = "7.2";
/** Folders that a self-built QEMU, or an unpacked package of one, has beside its bin folder */
const BESIDE = ["share/qemu", "share/seabios", "lib", "lib64"];

export type QemuBinary = {
  path: string;
  version: string;
  /** files outside /usr that QEMU needs: its program, firmware and libraries */
  files: string[];
};

/** QEMU in PATH, or the one in FORKD_QEMU; its version is null if it cannot be read */
export async function lookAtQemu(signal?: AbortSignal): Promise<{ path: string; version: string | null } | null> {
  const path = process.env["FORKD_QEMU"] || (await findProgram(PROGRAM));
  if (!path) return null;
  try {
    const { stdout } = await run([path, "--version"], { signal, timeoutMs: 10_000 });
    return { path, version: /version (\d+\.\d+(?:\.\d+)?)/.exec(stdout)?.[1] ?? null };
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof ForkdError) return { path, version: null };
    throw error;
  }
}

/** A usable QEMU; throws if there is none or it is too old */
export async function findQemu(signal?: AbortSignal): Promise<QemuBinary> {
  const found = await lookAtQemu(signal);
  if (!found)
    throw new ForkdError("HOST_TOOL_MISSING", `Cannot find ${PROGRAM} on PATH.`, {
      hint: `Install it: sudo apt-get install ${PROGRAM_PACKAGE}`,
    });
  if (!found.version) throw new ForkdError("HOST_TOOL_MISSING", `Cannot use ${found.path}: it does not print its version.`);
  if (compareVersions(found.version, OLDEST) < 0) {
    throw new ForkdError("HOST_TOOL_MISSING", `Cannot use ${found.path}: version ${found.version} is older than ${OLDEST}.`, {
      hint: "Install QEMU 7.2 or newer.",
    });
  }
  // QEMU finds its firmware relative to the real path of its program
  const path = await realpath(found.path);
  return { path, version: found.version, files: await filesOf(path) };
}

/** Only folders that belong to QEMU: the folder above may be a home, which must not become readable */
async function filesOf(path: string): Promise<string[]> {
  if (path.startsWith("/usr/")) return [];
  const prefix = dirname(dirname(path));
  const beside = await Promise.all(BESIDE.map(async (name) => existing(join(prefix, name))));
  return [path, ...beside.flatMap((found) => found ?? [])];
}

async function existing(path: string): Promise<string | undefined> {
  try {
    await access(path);
    return path;
  } catch {
    return undefined;
  }
}

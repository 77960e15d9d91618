// Finds QEMU and asks for its version.

import { access, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ForkdError } from "../../errors.ts";
import { run } from "../../host/run.ts";
import { findProgram } from "../../util/find-program.ts";
import { compareVersions } from "./version.ts";

const NAME = "qemu-system-x86_64";
const OLDEST = "7.2";
/** What a QEMU that somebody built brings with it, beside its bin folder */
const BESIDE = ["share/qemu", "lib", "lib64"];

export type QemuBinary = {
  path: string;
  version: string;
  /** what it needs outside /usr: its program, firmware and libraries */
  files: string[];
};

/** The QEMU on PATH, or the one FORKD_QEMU names; its version is null when it does not tell */
export async function lookAtQemu(signal?: AbortSignal): Promise<{ path: string; version: string | null } | null> {
  const path = process.env["FORKD_QEMU"] || (await findProgram(NAME));
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

/** A QEMU that can be used; throws when there is none or it is too old */
export async function findQemu(signal?: AbortSignal): Promise<QemuBinary> {
  const found = await lookAtQemu(signal);
  if (!found)
    throw new ForkdError("HOST_TOOL_MISSING", `Cannot find ${NAME} on PATH.`, { hint: "Install it: sudo apt-get install qemu-system-x86" });
  if (!found.version) throw new ForkdError("HOST_TOOL_MISSING", `Cannot use ${found.path}: it does not tell its version.`);
  if (compareVersions(found.version, OLDEST) < 0) {
    throw new ForkdError("HOST_TOOL_MISSING", `Cannot use ${found.path}: version ${found.version} is older than ${OLDEST}.`, {
      hint: "Install QEMU 7.2 or newer.",
    });
  }
  // QEMU looks for its firmware from where its program really is
  const path = await realpath(found.path);
  return { path, version: found.version, files: await filesOf(path) };
}

/** Only what is known to be QEMU's: the folder above may be a home, with everything in it */
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

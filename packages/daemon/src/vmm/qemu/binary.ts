// Finds QEMU and asks for its version.

import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { ForkdError } from "../../errors.ts";
import { run } from "../../host/run.ts";

const NAME = "qemu-system-x86_64";
const OLDEST = [7, 2] as const;

export type QemuBinary = { path: string; version: string };

/** The QEMU on PATH (FORKD_QEMU names another one); throws when there is none or it is too old */
export async function findQemu(env: NodeJS.ProcessEnv = process.env): Promise<QemuBinary> {
  const path = env["FORKD_QEMU"] || (await onPath(env["PATH"] ?? ""));
  if (!path)
    throw new ForkdError("HOST_TOOL_MISSING", `Cannot find ${NAME} on PATH.`, { hint: "Install it: sudo apt-get install qemu-system-x86" });
  const { stdout } = await run([path, "--version"], { timeoutMs: 10_000 });
  const version = /version (\d+)\.(\d+)\.(\d+)/.exec(stdout);
  if (!version) throw new ForkdError("HOST_TOOL_MISSING", `Cannot use ${path}: it does not tell its version.`);
  const [major, minor] = [Number(version[1]), Number(version[2])];
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
    throw new ForkdError("HOST_TOOL_MISSING", `Cannot use ${path}: version ${major}.${minor} is older than ${OLDEST.join(".")}.`, {
      hint: "Install QEMU 7.2 or newer.",
    });
  }
  return { path, version: `${version[1]}.${version[2]}.${version[3]}` };
}

async function onPath(path: string): Promise<string | undefined> {
  for (const dir of path.split(delimiter)) {
    const candidate = join(dir || ".", NAME);
    try {
      await access(candidate, constants.X_OK);
      return candidate;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code !== "ENOENT" && code !== "EACCES" && code !== "ENOTDIR") throw error;
    }
  }
  return undefined;
}

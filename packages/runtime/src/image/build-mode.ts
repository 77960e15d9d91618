// Decides how mmdebstrap gets root rights in the tree that it builds.

import { access, constants, readFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { delimiter, join } from "node:path";
import { ForkdError } from "../errors.ts";

export type BuildMode = "root" | "unshare" | "fakechroot";

/** root as root; else a user namespace with subordinate ids; else fakechroot if it is installed */
export async function chooseBuildMode(env: NodeJS.ProcessEnv = process.env): Promise<BuildMode> {
  if (process.getuid?.() === 0) return "root";
  const { username, uid } = userInfo();
  const mapped = (await hasSubIds("/etc/subuid", username, uid)) && (await hasSubIds("/etc/subgid", username, uid));
  if (mapped && (await isInstalled("newuidmap", env))) return "unshare";
  if ((await isInstalled("fakechroot", env)) && (await isInstalled("fakeroot", env))) return "fakechroot";
  if (mapped) {
    throw new ForkdError("HOST_TOOL_MISSING", "Cannot build an image as an ordinary user: newuidmap is not installed.", {
      hint: "Install it: sudo apt-get install uidmap",
    });
  }
  throw new ForkdError("HOST_TOOL_MISSING", `Cannot build an image as an ordinary user: ${username} has no subordinate user ids.`, {
    hint: `Give some: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ${username}`,
  });
}

async function hasSubIds(file: string, username: string, uid: number): Promise<boolean> {
  try {
    const text = await readFile(file, "utf8");
    return text.split("\n").some((line) => {
      const [owner, , count] = line.split(":");
      return (owner === username || owner === String(uid)) && Number(count) >= 65536;
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}

async function isInstalled(tool: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  for (const dir of (env["PATH"] ?? "/usr/bin:/bin").split(delimiter)) {
    try {
      await access(join(dir, tool), constants.X_OK);
      return true;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code !== "ENOENT" && code !== "EACCES" && code !== "ENOTDIR") throw error;
    }
  }
  return false;
}

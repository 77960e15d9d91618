// E2B's packages of PyPI, each version in an environment of its own that is kept for the next time.

import { execFile } from "node:child_process";
import { access, mkdir, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const CACHE = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "forkd-tests");
const INSTALL_MS = 300_000;

/** The interpreter that has this version; a reason where there can be none on this machine */
export async function e2bPython(version: string): Promise<{ python: string } | { reason: string }> {
  const folder = join(CACHE, `e2b-python-${version}`);
  const python = join(folder, "bin", "python");
  const done = join(folder, "complete");
  try {
    await access(done);
    return { python };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  try {
    await mkdir(CACHE, { recursive: true });
    await rm(folder, { recursive: true, force: true });
    await run("python3", ["-m", "venv", folder]);
    await run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", `e2b==${version}`], { timeout: INSTALL_MS });
    await writeFile(done, "");
    return { python };
  } catch (error) {
    return { reason: `e2b ${version} cannot be installed: ${String(error).split("\n")[0]}` };
  }
}

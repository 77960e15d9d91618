// E2B's packages of PyPI, each version in an environment of its own that is kept for the next time.

import { execFile } from "node:child_process";
import { access, mkdir, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const CACHE = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "forkd-tests");
const INSTALL_MS = 300_000;

type Found = { python: string } | { reason: string };

/** The interpreter that has this version; a reason where there can be none on this machine */
export async function e2bPython(version: string): Promise<Found> {
  return pythonWith({ e2b: version });
}

/** The same for several packages, each with its version */
export async function pythonWith(packages: Record<string, string>): Promise<Found> {
  const wanted = Object.entries(packages).map(([name, version]) => `${name}==${version}`);
  const folder = join(CACHE, `python-${wanted.join("-")}`);
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
    await run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...wanted], { timeout: INSTALL_MS });
    await writeFile(done, "");
    return { python };
  } catch (error) {
    return { reason: `${wanted.join(" ")} cannot be installed: ${String(error).split("\n")[0]}` };
  }
}

// E2B's Python packages from PyPI. Each version has a cached virtual environment.

import { execFile } from "node:child_process";
import { access, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { patience } from "./patience.ts";

const run = promisify(execFile);
const CACHE = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "forkd-tests");

type Found = { python: string } | { reason: string };

/** Path of the Python interpreter with this version, or the reason why this machine cannot have one */
export async function e2bPython(version: string): Promise<Found> {
  return pythonWith({ e2b: version });
}

/** The same for several packages; maps name to version */
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
    // Several test runs may install the same packages at once. Each uses its own folder; the first complete one is
    // renamed.
    const making = await mkdtemp(`${folder}.`);
    try {
      await run("python3", ["-m", "venv", making]);
      const install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...wanted];
      await run(join(making, "bin", "python"), install, { timeout: patience(50) });
      await writeFile(join(making, "complete"), "");
      await rename(making, folder);
    } catch (error) {
      await rm(making, { recursive: true, force: true });
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
    }
    await access(done);
    return { python };
  } catch (error) {
    return { reason: `${wanted.join(" ")} cannot be installed: ${String(error).split("\n")[0]}` };
  }
}

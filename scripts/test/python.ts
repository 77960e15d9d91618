// Unit tests of the Python SDK with the default Python, and with the oldest and newest supported ones if installed.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { commandJob } from "./job.ts";

import type { Job } from "./job.ts";

const run = promisify(execFile);
const VERSION = "import sys; print('%d.%d' % sys.version_info[:2])";

export async function pythonJobs(): Promise<Job[]> {
  const pyenv = await pyenvVersions();
  const env = pyenv === "" ? {} : { PYENV_VERSION: pyenv };
  const jobs = new Map<string, Job>();
  for (const program of ["python3", "python3.9", "python3.13"]) {
    const version = await outputOf(program, ["-c", VERSION], env);
    if (version === "" || jobs.has(version)) continue;
    const variables = Object.entries({ ...env, PYTHONPATH: "python/src" }).map(([key, value]) => `${key}=${value}`);
    jobs.set(version, commandJob("python", `python ${version}`, ["env", ...variables, program, "python/tests/run.py", "unit"]));
  }
  if (jobs.size === 0) console.log("test: python skipped: there is no python3");
  return [...jobs.values()];
}

/** All installed versions: pyenv's shims find a version only if it is named */
async function pyenvVersions(): Promise<string> {
  const own = await outputOf("pyenv", ["version-name"]);
  if (own === "") return "";
  return [own, ...(await outputOf("pyenv", ["versions", "--bare"])).split("\n")].join(":");
}

/** Output of a program; "" if it is missing or fails */
async function outputOf(program: string, args: string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  try {
    return (await run(program, args, { env: { ...process.env, ...env } })).stdout.trim();
  } catch {
    return "";
  }
}

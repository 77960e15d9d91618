// The files of deploy/, as tests read them.

import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { resolveConfig } from "../../src/config.ts";
import { resolveHome } from "../../src/home.ts";
import type { Config } from "../../src/config.ts";

export const root: string = resolve(import.meta.dirname, "..", "..", "..", "..");

/** Cancelled requests have so long to end after the time for draining; see daemon.ts */
export const ABORT_SECS = 5;

export async function readRepo(path: string): Promise<string> {
  return readFile(join(root, path), "utf8");
}

/** What the daemon says about an environment; throws what it would refuse to start with */
export async function settingsOf(env: NodeJS.ProcessEnv): Promise<Config> {
  const home = resolveHome({ FORKD_HOME: "/nonexistent/forkd", FORKD_RUN: "/nonexistent/run" });
  return (await resolveConfig({ env, home })).values;
}

export async function settingNames(): Promise<string[]> {
  const home = resolveHome({ FORKD_HOME: "/nonexistent/forkd", FORKD_RUN: "/nonexistent/run" });
  return Object.keys((await resolveConfig({ env: {}, home })).entries);
}

/** Not settings, and read all the same */
const OTHER_VARIABLES = ["FORKD_HOME", "FORKD_RUN", "FORKD_CONFIG", "FORKD_GUEST_KERNEL", "FORKD_QEMU"];

export async function unknownVariables(names: readonly string[]): Promise<string[]> {
  const known = new Set([...OTHER_VARIABLES, ...(await settingNames()).map((name) => `FORKD_${name.toUpperCase()}`)]);
  return names.filter((name) => name.startsWith("FORKD_") && !known.has(name));
}

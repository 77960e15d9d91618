// Readers of the files in deploy/.

import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { resolveConfig } from "../../src/config.ts";
import { resolveHome } from "@forkd/runtime/home";
import type { Config } from "../../src/config.ts";

export const root: string = resolve(import.meta.dirname, "..", "..", "..", "..");

/** Time that cancelled requests have to end after the drain time; see daemon.ts */
export const ABORT_SECS = 5;

export async function readRepo(path: string): Promise<string> {
  return readFile(join(root, path), "utf8");
}

/** The daemon's configuration in an environment; throws its start-up error */
export async function settingsOf(env: NodeJS.ProcessEnv): Promise<Config> {
  const home = resolveHome({ FORKD_HOME: "/nonexistent/forkd", FORKD_RUN: "/nonexistent/run" });
  return (await resolveConfig({ env, home })).values;
}

export async function settingNames(): Promise<string[]> {
  const home = resolveHome({ FORKD_HOME: "/nonexistent/forkd", FORKD_RUN: "/nonexistent/run" });
  return Object.keys((await resolveConfig({ env: {}, home })).entries);
}

/** Environment variables that are read but are no settings */
const OTHER_VARIABLES = ["FORKD_HOME", "FORKD_RUN", "FORKD_CONFIG", "FORKD_GUEST_KERNEL", "FORKD_QEMU"];

export async function unknownVariables(names: readonly string[]): Promise<string[]> {
  const known = new Set([...OTHER_VARIABLES, ...(await settingNames()).map((name) => `FORKD_${name.toUpperCase()}`)]);
  return names.filter((name) => name.startsWith("FORKD_") && !known.has(name));
}

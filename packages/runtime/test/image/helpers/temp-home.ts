// A store for each test, removed at its end.

import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { prepareHome, resolveHome } from "../../../src/home.ts";
import type { Home } from "../../../src/home.ts";

export async function tempHome(t: TestContext): Promise<Home> {
  const dir = await tempDir(t);
  return prepareHome(resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") }));
}

export async function tempDir(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-test-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** Everything in the store that failed work might leave behind */
export async function leftovers(home: Home): Promise<string[]> {
  const found = [];
  for (const dir of [home.staging, home.images, join(home.cache, "blobs")]) {
    const names = await readdir(dir, { recursive: true }).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return [];
      throw error;
    });
    found.push(...names.filter((name) => name !== "names"));
  }
  return found;
}

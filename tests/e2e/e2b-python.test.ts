// E2B's unmodified PyPI packages against the daemon: the newest and two older versions.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { newestUnlessAll } from "../helpers/all.ts";
import { e2bPython } from "../helpers/e2b-python.ts";
import { patience } from "../helpers/patience.ts";
import { E2bDaemon } from "../helpers/e2b.ts";

const COMMON = ["commands", "files", "lifecycle", "killed", "asynchronously"];
/** The oldest version has no fork */
const TESTS = newestUnlessAll({ "2.63.0": [...COMMON, "growing", "newest"], "2.51.0": [...COMMON, "growing"], "2.30.0": COMMON });
const PROGRAM = join(import.meta.dirname, "..", "programs", "e2b-client.py");
const run = promisify(execFile);

// Install all versions before the first test is registered: node:test runs later ones after `after`
const pythons = await Promise.all(
  Object.entries(TESTS).map(async ([version, names]) => ({ version, names, found: await e2bPython(version) })),
);
let e2b: E2bDaemon;

before(async () => {
  e2b = await E2bDaemon.start();
});

after(async () => {
  await e2b[Symbol.asyncDispose]();
});

for (const { version, names, found } of pythons) {
  describe(`e2b ${version}`, { skip: "reason" in found ? found.reason : false }, () => {
    for (const name of names) {
      test(name, async () => {
        const python = "python" in found ? found.python : "";
        await run(python, [PROGRAM, name], { env: { ...process.env, ...e2b.env }, timeout: patience() });
      });
    }
  });
}

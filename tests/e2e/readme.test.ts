// Every command line of the README's first steps does what the README says.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

const root = join(import.meta.dirname, "..", "..");
const execute = promisify(execFile);
/** Needs the internet; `image pull` itself is tested against a registry on this machine */
const NOT_RUN = /^\.\/forkd image pull /;

let lines: string[] = [];

before(async () => {
  const text = await readFile(join(root, "README.md"), "utf8");
  lines = [...text.matchAll(/^ {4}(\.\/forkd [^#\n]*)/gm)].map((match) => (match[1] ?? "").trim());
});

after(async () => {
  await forkd(["image", "rm", "py"]);
});

async function forkd(args: string[]): Promise<string> {
  const { stdout } = await execute(join(root, "forkd"), args, { cwd: root });
  return stdout;
}

test("the README shows commands", () => {
  assert.ok(lines.length >= 4, lines.join("\n"));
});

test("each of them succeeds, in their order", { timeout: 300_000 }, async (t) => {
  for (const line of lines) {
    if (NOT_RUN.test(line)) {
      t.diagnostic(`not run, it needs the internet: ${line}`);
      continue;
    }
    await forkd(line.split(/\s+/).slice(1));
  }
  assert.match(await forkd(["image", "ls"]), /^py[,\s]/m);
});

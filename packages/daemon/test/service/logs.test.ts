// Logs of a sandbox, which its VMM can make arbitrarily long.

import assert from "node:assert/strict";
import { mkdtemp, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { ConsoleLogs, logLines } from "../../src/service/logs.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";

test("only the end of a VMM's log is read", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-logs-"));
  t.after(async () => rm(dir, { recursive: true }));
  const log = join(dir, "vmm.log");
  const sandbox = { dir, vm: { log }, alive: true } as unknown as Sandbox;
  const read = async (): Promise<string> =>
    (await Array.fromAsync(logLines(new ConsoleLogs(), sandbox, { source: "vmm", follow: false }, AbortSignal.timeout(patience())))).join(
      "",
    );
  assert.equal(await read(), "");
  await writeFile(log, "first\n");
  assert.equal(await read(), "first\n");
  // sparse: reading it whole would need this much memory
  await truncate(log, 16 * 1024 ** 3);
  await writeFile(log, "last\n", { flag: "a" });
  const end = await read();
  assert.equal(end.length, 256 * 1024);
  assert.ok(end.endsWith("last\n"));
  await rm(log);
  await symlink("/dev/zero", log);
  assert.equal(await read(), "");
});

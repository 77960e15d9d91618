// `forkd uninstall` on a store with real VMs.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { resolveHome } from "@forkd/runtime";
import { TestDaemon } from "../helpers/daemon.ts";
import { namesIn, waitUntilGone } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";

for (const [when, before] of [
  ["while the daemon runs", async () => {}],
  ["while VMs run without their daemon", async (daemon: TestDaemon) => daemon.kill9()],
] as const) {
  it(`ends every VM and removes the store ${when}`, async () => {
    await using daemon = await TestDaemon.start();
    await daemon.makePython();
    const made = await daemon.controller.spawnSandboxes("python", { n: 2 });
    await before(daemon);
    const env = { XDG_CACHE_HOME: join(daemon.home.root, "..", "caches"), FORKD_NO_AUTOSTART: "" };
    const { code, stdout, stderr } = await daemon.cli(["uninstall", "--yes"], { env });
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^Stopped the daemon .* ended its 2 sandboxes\.\nREMOVED +SIZE$/m);
    const pids = made.flatMap(({ pid }) => (pid === null ? [] : [pid]));
    assert.deepEqual(await waitUntilGone(pids, patience(5)), []);
    for (const folder of [daemon.home.root, daemon.home.run])
      assert.ok(!existsSync(folder), `${folder}: ${(await namesIn(folder)).join(", ")}\n${stdout}${stderr}`);
    assert.ok((await readdir(resolveHome().images)).length > 0, "what the store only links to stays");
  });
}

// forkd top on real VMs: the tree at a terminal, its keys, and its form for programs.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { screenOf } from "../helpers/screen.ts";
import { Terminal } from "../helpers/terminal.ts";
import { until } from "../helpers/until.ts";

const CLI = join(resolve(import.meta.dirname, "..", ".."), "packages", "cli", "bin", "forkd.mjs");

describe("forkd top", () => {
  let daemon: TestDaemon;
  let web: Sandbox;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    web = await Sandbox.create("python", { controller: daemon.controller, name: "web" });
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("prints the tree once into a pipe, as text and as JSON with the usage", async () => {
    const { code, stdout } = await daemon.cli(["top"]);
    assert.equal(code, 0);
    assert.match(stdout, new RegExp(String.raw`${web.id} \(web\) +running +[\d.]+ [KM]iB +\d+[sm] +[\d.]+ MiB`));
    type Used = { tag: string; sandboxes: { id: string; usage: { cpu_ms: number; pss_bytes: number } | null }[] };
    const { roots } = JSON.parse((await daemon.cli(["top", "--json"])).stdout) as { roots: Used[] };
    const used = roots.find(({ tag }) => tag === "python")?.sandboxes.find(({ id }) => id === web.id)?.usage;
    assert.ok(used && used.cpu_ms > 0 && used.pss_bytes > 0);
    assert.match((await daemon.cli(["top", "web"])).stdout, /There are no processes|^ID +PID/);
  });

  it(
    "follows, forks, branches and ends sandboxes",
    { skip: hasPython() ? false : "there is no python3, which makes terminals" },
    async () => {
      await using terminal = new Terminal([process.execPath, "--disable-warning=ExperimentalWarning", CLI, "top"], {
        ...daemon.env,
        LC_ALL: "C.UTF-8",
      });
      const before = await terminal.modes();
      const sees = async (what: RegExp): Promise<void> => until(() => screenOf(terminal.screen).lines.some((line) => what.test(line)));
      const ids = async (): Promise<string[]> => (await daemon.controller.listSandboxes()).map(({ id }) => id);
      await sees(/\(web\) +running/);

      // the first row is the snapshot python
      terminal.type("f2\r");
      await sees(/^Forked 2 sandboxes\./);
      const forked = (await ids()).filter((id) => id !== web.id);
      assert.equal(forked.length, 2);
      for (const id of forked) await sees(new RegExp(`${id} +running`));

      terminal.type("jbhalfway\r");
      await sees(new RegExp(`^Branched ${web.id} into halfway`));
      await sees(new RegExp(String.raw`\[halfway\] from ${web.id}`));

      // an event of another client
      const other = await Sandbox.create("halfway", { controller: daemon.controller, name: "other" });
      await sees(new RegExp(String.raw`└ ${other.id} \(other\) +running`));

      terminal.type("/other\r");
      await sees(/3 rows with "other"/);
      terminal.type("Gxy");
      await sees(new RegExp(`^Ended ${other.id}\\.`));
      assert.ok(!(await ids()).includes(other.id));
      await sees(/Nothing contains this text/);

      terminal.type("q");
      assert.equal(await terminal.exit(), 0);
      assert.equal(await terminal.modes(), before);
      assert.deepEqual((await ids()).toSorted(), [web.id, ...forked].toSorted());
    },
  );
});

function hasPython(): boolean {
  try {
    execFileSync("python3", ["-c", "import pty"]);
    return true;
  } catch {
    return false;
  }
}

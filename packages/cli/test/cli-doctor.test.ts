import assert from "node:assert/strict";
import { mkdir, readdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { forkd, temporaryFolder } from "./helpers.ts";

type Report = {
  ok: boolean;
  accelerator: string | null;
  isolation: string | null;
  summary: string;
  checks: { id: string; status: string; reason: string; fix?: string }[];
};

test("doctor --json has a verdict, a reason for each check, and the isolation", async () => {
  await using folder = await temporaryFolder();
  const { code, stdout } = await forkd(["doctor", "--json"], { FORKD_HOME: join(folder.path, "home") });
  const report = JSON.parse(stdout) as Report;
  assert.equal(code, report.ok ? 0 : 1);
  assert.ok(report.checks.length >= 18);
  for (const check of report.checks) {
    assert.match(check.status, /^(pass|warn|fail)$/);
    assert.notEqual(check.reason, "");
  }
  assert.ok(report.summary.length > 0);
  // This home has no guest kernel, so nothing was probed
  assert.equal(report.accelerator, null);
  assert.equal(report.isolation, null);
  assert.deepEqual(await readdir(folder.path), []);
});

test("doctor without QEMU fails and gives the command that installs it", async () => {
  await using folder = await temporaryFolder();
  const bin = join(folder.path, "bin");
  await mkdir(bin);
  for (const tool of ["sh", "readlink", "unshare"]) await symlink(`/usr/bin/${tool}`, join(bin, tool));
  const env = { PATH: bin, FORKD_HOME: join(folder.path, "home") };
  const { code, stdout } = await forkd(["doctor"], env);
  assert.equal(code, 1);
  assert.match(stdout, /^FAIL +qemu +qemu-system-x86_64 is not in PATH\.$/m);
  assert.match(stdout, /^qemu +(sudo )?apt-get install --yes qemu-system-x86$/m);
  assert.match(stdout.trimEnd().split("\n").at(-1) ?? "", /^Not ready: .*qemu/);
});

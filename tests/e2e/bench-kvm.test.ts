// The benchmark kit for hosts with KVM: it reports what cannot run on this host, and prints a complete report.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { patience } from "../helpers/patience.ts";
import { ensurePythonImage } from "../helpers/vm.ts";

const CLI = join(import.meta.dirname, "../../packages/cli/bin/forkd.mjs");
const STEPS = ["boot", "fork", "certificate", "branch", "network", "clock"];

test("the smoke passes emulated, and with KVM where the host has one", { timeout: 10 * patience() }, async (t) => {
  await ensurePythonImage(await prepareHome(resolveHome()));
  const args = ["--disable-warning=ExperimentalWarning", CLI, "bench", "kvm", "--smoke", "--clock-secs", "2"];
  const { stdout } = await promisify(execFile)(process.execPath, args, { signal: t.signal });
  const lines = stdout.split("\n");
  assert.match(lines[0] ?? "", /^### .*, QEMU .*, \d{4}-\d\d-\d\d$/);
  const at = ["kvm", "tcg"].map((name) => lines.findIndex((line) => line.startsWith(`**${name}**`)));
  const [kvm = -1, tcg = -1] = at;
  assert.ok(kvm > 0 && tcg > kvm, stdout);
  const stepsIn = (part: string[]): string[] => part.flatMap((line) => /^\| (\w+) \| ok \| \d+ ms \|/.exec(line)?.[1] ?? []);
  assert.deepEqual(stepsIn(lines.slice(tcg)), STEPS, stdout);
  if (lines[kvm] === "**kvm**") assert.deepEqual(stepsIn(lines.slice(kvm, tcg)), STEPS, stdout);
  else assert.match(lines[kvm] ?? "", /^\*\*kvm\*\*: not tried: .*\/dev\/kvm/);
});

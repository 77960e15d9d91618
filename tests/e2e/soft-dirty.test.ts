// Capture with soft-dirty marks, which the kernels of Debian and Ubuntu have and this host's may lack. Therefore the
// warden runs in a guest whose kernel has them.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it, type TestContext } from "node:test";
import { installation } from "@forkd/runtime";
import { patience } from "../helpers/patience.ts";
import { startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

const ROUNDS = 12;
/** Same value as in the program */
const PAGES = 2048;
const PROGRAM = join(import.meta.dirname, "../programs/soft-dirty.py");
const PROTOCOL = join(import.meta.dirname, "../../spec/warden-protocol.md");

/** Times in microseconds, and numbers of pages */
type Cost = { pages: number; recopied: number; begin: number; finish: number; sweep: number; after: number };
type Report = {
  method: string;
  finder: string;
  captures: { pages: number; recopied: number; micros: number; wrong: number }[];
  costs: Cost[];
};

describe("changed pages of a process that writes at random", () => {
  let vm: TestVm;
  let guest: Sandbox;
  let run: string;

  before(async () => {
    vm = await startVm("soft-dirty");
    guest = await vm.fork();
    await guest.files.write("/tmp/warden", await readFile(installation.warden), { mode: 0o755 });
    // the number of an operation changes with its fields
    const protocol = await readFile(PROTOCOL, "utf8");
    const numbers = ["SPAWN", "CAPTURE_BEGIN"].map((name) => new RegExp(`^\\| (\\d+) ${name} \\|`, "m").exec(protocol)?.[1]);
    assert.ok(
      numbers.every((number) => number !== undefined),
      "the protocol has both operations",
    );
    run = `python3 /tmp/soft-dirty.py /tmp/warden ${numbers.join(" ")} ${ROUNDS}`;
    await guest.files.write("/tmp/soft-dirty.py", await readFile(PROGRAM));
  });
  after(async () => vm.close());

  async function captured(t: TestContext, command: string): Promise<Report> {
    const { code, stdout, stderr } = await guest.exec(["sh", "-c", command], { timeoutMs: 4 * patience() });
    assert.equal(code, 0, stderr.toString());
    const report = JSON.parse(stdout.toString()) as Report;
    assert.equal(report.captures.length, ROUNDS);
    for (const { pages, wrong } of report.captures) {
      assert.ok(pages > 0);
      assert.equal(wrong, 0, `${wrong} pages are not what the process had`);
    }
    // an idle process does not change its pages, so none is copied again
    for (const { pages, recopied } of report.costs) assert.deepEqual([pages, recopied], [PAGES, 0]);
    t.diagnostic(`${report.method}, ${PAGES} pages, median of ${ROUNDS} in an emulated guest: ${costOf(report.costs)}`);
    return report;
  }

  it("are all found by soft-dirty marks, and only some pages are copied again", async (t) => {
    const { method, captures } = await captured(t, run);
    assert.equal(method, "soft-dirty");
    assert.ok(captures.some(({ pages, recopied }) => recopied > 0 && recopied < pages));
  });

  it("are all found by comparing, the method for a kernel without soft-dirty marks", async (t) => {
    // without a writable /proc the marks cannot be cleared
    const { method, captures } = await captured(t, `unshare --mount sh -c 'mount -o remount,bind,ro /proc && ${run}'`);
    assert.equal(method, "compare");
    assert.ok(captures.some(({ recopied }) => recopied > 0));
  });
});

/** Figures for docs/benchmarks.md */
function costOf(costs: readonly Cost[]): string {
  const median = (field: keyof Cost): number =>
    costs.map((cost) => cost[field]).toSorted((a, b) => a - b)[Math.floor(costs.length / 2)] ?? Number.NaN;
  const said = { begin: "first copy", finish: "pause", sweep: "a write to every page", after: "the same after the capture" } as const;
  return Object.entries(said)
    .map(([field, what]) => `${what} ${Math.round(median(field as keyof typeof said))} µs`)
    .join(", ");
}

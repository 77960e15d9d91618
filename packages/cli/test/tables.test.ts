// Lists on a terminal of 80 columns, and their hidden columns.

import assert from "node:assert/strict";
import { test } from "node:test";
import { formatTable } from "../src/terminal/output.ts";
import { fakeDaemon } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";
import * as samples from "./samples.ts";

import type { SandboxStats, SnapshotInfo } from "forkd";

const NARROW = { COLUMNS: "80" };
const ID = "sb-abcdefghijklmnop";
const HASH = "3f".repeat(32);

const SNAPSHOTS: SnapshotInfo[] = [
  samples.snapshot("python-numpy", { kernels: ["python", "node"], metadata: { team: "search and ranking", owner: "somebody" } }),
  samples.snapshot("build-workbench-0123456789ab", {
    parent_tag: "python-numpy",
    branched_from: ID,
    metadata: { "forkd.build": "workbench", "forkd.key": HASH, "forkd.recipe": "workbench" },
  }),
  samples.snapshot("workbench", {
    parent_tag: "build-workbench-0123456789ab",
    branched_from: ID,
    kernels: ["python", "node", "bash"],
    metadata: { "forkd.key": HASH, "forkd.recipe": "workbench" },
    pool: 2,
  }),
  samples.snapshot("sl-abcdefghijklmnop", { parent_tag: "workbench", branched_from: ID, ephemeral: true }),
];

function lines(stdout: string): string[] {
  return stdout.trimEnd().split("\n");
}

function assertNarrow(stdout: string): void {
  for (const line of lines(stdout)) assert.ok(line.length <= 80, `${line.length} columns: ${line}`);
}

test("snapshot ls fits 80 columns and leaves out internal snapshots", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/snapshots": { json: SNAPSHOTS } });
  const { stdout } = await forkd(["snapshot", "ls"], { ...daemon.env, ...NARROW });
  assertNarrow(stdout);
  assert.match(stdout, /^TAG +STATUS +IMAGE +MEMORY +KERNELS +FROM +POOL +AGE +METADATA$/m);
  assert.match(stdout, /^python-numpy +ready/m);
  assert.match(stdout, /^workbench .* python-/m, "FROM is the nearest snapshot that is listed");
  assert.doesNotMatch(stdout, /build-|sl-|forkd\.|3f3f/);
  assert.equal((await forkd(["snapshot", "ls", "-q"], daemon.env)).stdout, "python-numpy\nworkbench\n");
});

test("snapshot ls -a has all of them, with forkd's own metadata and the sandbox each was branched off", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/snapshots": { json: SNAPSHOTS } });
  const { stdout } = await forkd(["snapshot", "ls", "-a"], daemon.env);
  for (const text of [...SNAPSHOTS.map(({ tag }) => tag), ID, `forkd.key=${HASH}`]) assert.ok(stdout.includes(text), text);
});

test("empty columns are left out", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/snapshots": { json: [samples.snapshot("python")] } });
  const { stdout } = await forkd(["snapshot", "ls"], daemon.env);
  assert.match(stdout, /^TAG +STATUS +IMAGE +MEMORY +KERNELS +AGE\n/);
});

test("ls, fork and stats fit 80 columns", async () => {
  const sandbox = samples.sandbox(ID, {
    name: "the-web-server-of-the-team",
    snapshot_tag: "a-snapshot-with-a-rather-long-tag",
    state: "suspended",
    metadata: { a: "1", b: "2", c: "a longer value" },
  });
  const stats = { id: ID, name: null, state: "suspended", cpu_ms: 1_234_567, private_guest_bytes: 1e9, pss_bytes: 1e9, disk_bytes: 1e9 };
  await using daemon = await fakeDaemon({
    "GET /v1/sandboxes": { json: [sandbox] },
    "POST /v1/sandboxes": { status: 201, json: [sandbox] },
    "GET /v1/stats": { json: [stats as SandboxStats] },
    "GET /v1/tree": {
      json: {
        roots: [
          {
            id: "sn-1",
            tag: "a-snapshot-with-a-rather-long-tag",
            status: "ready",
            branched_from: null,
            sandboxes: [{ id: ID, name: sandbox.name, state: "suspended", metadata: {} }],
            snapshots: [],
          },
        ],
      },
    },
  });
  for (const args of [["ls"], ["fork", "x"], ["stats"], ["top"]]) {
    const { code, stdout } = await forkd(args, { ...daemon.env, ...NARROW });
    assert.equal(code, 0);
    assertNarrow(stdout);
    assert.ok(stdout.includes(ID), "an id is never broken");
  }
});

test("image ls fits 80 columns", async () => {
  const packages = Array.from({ length: 12 }, (_, i) => `python3-package-${i}`);
  const image = samples.image("a-name", { names: ["a-name", "a-second-one"], source: { kind: "packages", suite: "bookworm", packages } });
  await using daemon = await fakeDaemon({ "GET /v1/images": { json: [image] } });
  assertNarrow((await forkd(["image", "ls"], { ...daemon.env, ...NARROW })).stdout);
  assertNarrow((await forkd(["image", "ls", "-a"], { ...daemon.env, ...NARROW })).stdout);
});

test("doctor fits 80 columns", async () => {
  const { stdout } = await forkd(["doctor"], { ...NARROW, FORKD_HOME: `/nonexistent/${"folder/".repeat(12)}` });
  assert.match(stdout, /^STATUS +CHECK +REASON$/m);
  // a command that fixes a problem is not wrapped, so that it can be copied
  assertNarrow(stdout.replaceAll(/^\S+ +(sudo|systemd-run|forkd|make) .*$/gm, ""));
});

test("sentences wrap beside commands that do not", () => {
  const rows = ["Change it in the settings", "sudo sysctl -w a.long.name=1"];
  const columns = [{ title: "DO", value: (row: string) => row, wraps: (text: string) => !text.startsWith("sudo") }];
  assert.equal(formatTable(rows, columns, 16), "DO\nChange it in the\nsettings\nsudo sysctl -w a.long.name=1");
});

test("recipes fit 80 columns", async () => {
  assertNarrow((await forkd(["recipes"], NARROW)).stdout);
});

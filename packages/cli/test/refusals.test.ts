// Errors of a command line that are found before a request to the daemon.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { test } from "node:test";
import { MAX_FORKS } from "../src/options/values.ts";
import { fakeDaemon } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";
import * as samples from "./samples.ts";

test("more sandboxes than one request allows are refused before anything is created", async () => {
  await using daemon = await fakeDaemon();
  for (const args of [
    ["fork", "python", "-n", "100000"],
    ["fork", "--from-sandbox", "web", "-n", "1001"],
    ["quickstart", "-n", "100000"],
  ]) {
    const { code, stderr } = await forkd(args, daemon.env);
    assert.equal(code, 2);
    assert.match(stderr, /At most 1000 sandboxes are forked at once\. Fork again for more\./);
  }
  assert.deepEqual(daemon.lines(), []);
});

test("the limit is that of the API", async () => {
  const text = await readFile(resolve(import.meta.dirname, "..", "..", "..", "spec", "openapi.json"), "utf8");
  const { components } = JSON.parse(text) as { components: { schemas: Record<string, { properties?: { n?: { maximum?: number } } }> } };
  const limits = Object.values(components.schemas).flatMap(({ properties }) => properties?.n?.maximum ?? []);
  assert.ok(limits.length > 0);
  assert.deepEqual(new Set(limits), new Set([MAX_FORKS]));
});

test("a relative path in a sandbox is refused with the absolute one", async () => {
  await using daemon = await fakeDaemon();
  for (const args of [
    ["cp", "README.md", "web:tmp/x"],
    ["cp", "web:tmp/x", "."],
    ["files", "ls", "web:tmp/x"],
  ]) {
    const { code, stderr } = await forkd(args, daemon.env);
    assert.equal(code, 2);
    assert.match(stderr, /^forkd: 'web:tmp\/x' is not a path in a sandbox: a path there begins with '\/', such as web:\/tmp\/x\.\n/);
  }
  assert.match((await forkd(["cp", "a", "b"])).stderr, /^forkd: Exactly one side must be in a sandbox/);
  assert.deepEqual(daemon.lines(), []);
});

test("up and status print how to give the daemon a port", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/status": { json: samples.status({ bind: null }) } });
  for (const verb of ["up", "status"])
    assert.match((await forkd([verb], daemon.env)).stdout, /^address +none; for a port: forkd down && forkd up --bind 127\.0\.0\.1:8889$/m);
});

test("logs without output print where other output is", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes/web/logs": (_asked, response) => response.end() });
  const { code, stdout, stderr } = await forkd(["logs", "web"], daemon.env);
  assert.deepEqual([code, stdout], [0, ""]);
  assert.match(stderr, /^The console of web wrote nothing since the fork; .*\n.*'forkd ps -a web'.*'forkd attach web PROCESS'/);
  daemon.answers["GET /v1/sandboxes/web/logs"] = (_asked, response) => response.end("a line\n");
  assert.deepEqual(await forkd(["logs", "web"], daemon.env), { code: 0, stdout: "a line\n", stderr: "" });
});

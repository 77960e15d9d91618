// forkd mcp: refusals.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeDaemon } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";

test("an address that others can reach needs TLS", async () => {
  const { code, stderr } = await forkd(["mcp", "--http", "0.0.0.0:0"], { FORKD_URL: "http://127.0.0.1:9" });
  assert.equal(code, 1);
  assert.match(stderr, /others could read the tokens.*\n.*--tls-cert.*\[BAD_CONFIG\]/);
});

test("over HTTP it needs a daemon that checks tokens", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/status": { json: { bind: null, tls: false } } });
  for (const env of [daemon.env, { ...daemon.env, FORKD_URL: `unix://${daemon.folder}/forkd.sock` }, { FORKD_RUN: "/nonexistent/x" }]) {
    const { code, stderr } = await forkd(["mcp", "--http", "127.0.0.1:0"], env);
    assert.equal(code, 1);
    assert.match(stderr, /\[NO_TCP\]/);
  }
});

test("an invalid address, and a certificate without its key, are usage errors", async () => {
  for (const args of [
    ["--http", "localhost"],
    ["--http", "127.0.0.1:99999"],
    ["--http", "127.0.0.1:0", "--tls-cert", "x"],
    ["--lease", "0"],
  ]) {
    const { code, stderr } = await forkd(["mcp", ...args]);
    assert.equal(code, 2, args.join(" "));
    assert.match(stderr, /\[USAGE\]/);
  }
});

test("a client that disconnects at once is no error", async () => {
  const { code, stdout, stderr } = await forkd(["mcp"], { FORKD_RUN: "/nonexistent/x" }, "");
  assert.deepEqual([code, stdout, stderr], [0, "", ""]);
});

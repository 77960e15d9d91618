// The end of a sandbox during a streamed command.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { test, type TestContext } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { envelope } from "../../src/e2b/envd/envelope.ts";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { FakeWatched, output } from "../helpers/fake-watched.ts";
import { serve } from "../helpers/serve.ts";

const ID = "sb-abcdefgh234567xy";

/** Starts a command on a new connection; returns the received text and how the connection ended */
async function follow(t: TestContext, agent: string): Promise<{ said: string; ended: string }> {
  const process = new FakeWatched();
  process.put(output("hello", 0));
  const sandbox = { ...sandboxInfo(ID), created_by: "ci", metadata: {}, created_at_unix_ms: 1, expires_at_unix: null };
  const manager = fakeManager({
    sandboxes: { get: () => sandbox },
    files: { read: async () => (async function* () {})() },
    processes: { startWatched: async () => process },
  });
  const { port, services } = await serve(t, { manager });
  const body = envelope({ process: { cmd: "sleep", args: ["60"] } });
  const head = [
    "POST /process.Process/Start HTTP/1.1",
    "Host: localhost",
    "Content-Type: application/connect+json",
    "E2b-Sandbox-Id: sbabcdefgh234567xy",
    `User-Agent: ${agent}`,
    `X-Access-Token: ${services.accessTokens.of(sandbox, "envd")}`,
    `Content-Length: ${body.length}`,
  ];
  const socket = connect({ port, host: "127.0.0.1" });
  let said = "";
  return new Promise((resolve) => {
    socket.on("data", (piece) => {
      said += piece.toString("latin1");
      // the sandbox ends after the client has received output
      if (said.includes("aGVsbG8=")) process.fail(new ForkdError("VMM_EXITED", "The sandbox has ended."));
    });
    socket.once("end", () => resolve({ said, ended: "end" }));
    socket.once("error", (error: NodeJS.ErrnoException) => resolve({ said, ended: error.code ?? "" }));
    socket.write(`${head.join("\r\n")}\r\n\r\n`);
    socket.write(body);
  });
}

test("the stream of a killed sandbox is reset after the command's output", async (t) => {
  for (const agent of ["connectrpc/0.12.1", "node"]) {
    const { said, ended } = await follow(t, agent);
    assert.match(said, /^HTTP\/1\.1 200 /);
    assert.equal(ended, "ECONNRESET", agent);
  }
});

test("for the older Python SDK it ends before the end of its body", async (t) => {
  const { said, ended } = await follow(t, "e2b-python-sdk/2.30.0");
  assert.equal(ended, "end");
  assert.ok(!said.endsWith("0\r\n\r\n"), "the body is not finished");
});

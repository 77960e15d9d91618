import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, request } from "node:https";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { promisify } from "node:util";
import { endServer, followHandshakes } from "../../src/util/end-server.ts";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";

test("a server ends at once, also with a connection that never finishes its TLS handshake", async () => {
  const server = createServer({});
  followHandshakes(server);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  await Promise.all([once(client, "connect"), once(server, "connection")]);
  const ended = once(client, "close");
  await endServer(server);
  await ended;
  assert.equal(server.listening, false);
  await endServer(server);
});

test("a connection that was upgraded is ended by who upgraded it", async (t) => {
  const server = createServer(await certificate(t));
  followHandshakes(server);
  const upgraded = once(server, "upgrade") as Promise<[unknown, Duplex]>;
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const asked = request({ port, host: "127.0.0.1", rejectUnauthorized: false, headers: { connection: "upgrade", upgrade: "x" } });
  asked.on("error", () => undefined); // it never gets an answer
  asked.end();
  const [, socket] = await upgraded;
  const ended = endServer(server);
  assert.equal(await Promise.race([ended, turn("waits")]), "waits");
  assert.equal(socket.destroyed, false);
  socket.destroy();
  await ended;
});

async function certificate(t: TestContext): Promise<{ key: Buffer; cert: Buffer }> {
  const folder = await mkdtemp(join(tmpdir(), "forkd-end-server-"));
  t.after(async () => rm(folder, { recursive: true, force: true }));
  const [key, cert] = [join(folder, "key"), join(folder, "cert")];
  const made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", key, "-out", cert];
  await promisify(execFile)("openssl", ["req", "-x509", ...made, "-subj", "/CN=server"]);
  return { key: await readFile(key), cert: await readFile(cert) };
}

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:https";
import { connect } from "node:net";
import { test } from "node:test";
import { endServer, followConnections } from "../../src/util/end-server.ts";
import type { AddressInfo } from "node:net";

test("a server ends at once, also with a connection that never finishes its TLS handshake", async () => {
  const server = createServer({});
  followConnections(server);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  await Promise.all([once(client, "connect"), once(server, "connection")]);
  const ended = once(client, "close");
  await endServer(server);
  await ended;
  assert.equal(server.listening, false);
  await endServer(server);
});

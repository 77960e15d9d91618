// Accepted Host headers without TLS.

import assert from "node:assert/strict";
import { test } from "node:test";
import { serve } from "../helpers/serve.ts";
import { serveGuests, httpServer } from "../proxy/guest.ts";
import type { Fixture } from "../helpers/serve.ts";

const OWN = [
  "127.0.0.1:8889",
  "127.0.0.1",
  "192.0.2.7:1",
  "[::1]:8889",
  "[2001:db8::1]",
  "localhost",
  "LocalHost:8889",
  "a.localhost",
  "localhost.",
];
const FOREIGN = [
  "evil.example",
  "evil.example:8889",
  "localhost.evil.example",
  "evillocalhost",
  "127.0.0.1.evil.example",
  "[evil]",
  "a b",
  "x@localhost",
];

async function statusOf({ ask }: Pick<Fixture, "ask">, host: string, path = "/healthz"): Promise<number> {
  return (await ask(path, { tcp: true, headers: { host } })).status;
}

test("without TLS the Host must be an address or a name of the daemon, for any path", async (t) => {
  const fixture = await serve(t);
  for (const host of OWN) assert.equal(await statusOf(fixture, host), 200, host);
  for (const host of FOREIGN) assert.equal(await statusOf(fixture, host), 403, host);
  const { token } = fixture.services.tokens.create({ name: "ci", scope: "admin", max_sandboxes: null });
  const refused = await fixture.ask("/version", { tcp: true, token, headers: { host: "evil.example" } });
  assert.deepEqual([refused.status, refused.json()["code"]], [403, "FORBIDDEN"]);
  assert.match(String(refused.json()["hint"]), /allowed_hosts/);
  assert.equal((await fixture.ask("/healthz", { headers: { host: "evil.example" } })).status, 200, "no page reaches the Unix socket");
});

test("configured names belong to the daemon, and names below additional hosts do not", async (t) => {
  const fixture = await serve(t, {
    settings: {
      "proxy-domain": "https://preview.example.org",
      "allowed-hosts": "forkd, api.example.org",
      bind: "box.lan:0",
      insecure: "true",
    },
  });
  for (const host of ["preview.example.org", "80-a.preview.example.org", "FORKD:8889", "api.example.org", "box.lan", "localhost"])
    assert.notEqual(await statusOf(fixture, host), 403, host);
  for (const host of ["x.api.example.org", "example.org", "xpreview.example.org"]) assert.equal(await statusOf(fixture, host), 403, host);
  const open = await serve(t, { settings: { "allowed-hosts": "*" } });
  assert.equal(await statusOf(open, "evil.example"), 200);
});

test("a page under its own host name cannot reach a public sandbox", async (t) => {
  const fixture = await serveGuests(t);
  fixture.guests.metadata["e2b:public"] = "true";
  const port = await httpServer(t, (_request, response) => void response.end("for all"));
  const path = `/v1/sandboxes/web/proxy/${port}/`;
  assert.equal(await statusOf(fixture, "localhost:8889", path), 200);
  assert.equal(await statusOf(fixture, "evil.example:8889", path), 403);
  const named = { host: "evil.example", "e2b-sandbox-id": "sb-a", "e2b-sandbox-port": String(port) };
  assert.equal((await fixture.ask("/", { tcp: true, headers: named })).status, 403);
});

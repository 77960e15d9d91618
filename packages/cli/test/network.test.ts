// Network policy on the command line: requests and output.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeDaemon } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";
import * as samples from "./samples.ts";

const SB = samples.sandbox("sb-1");

const ANSWERS = {
  "POST /v1/sandboxes": { status: 201, json: [SB] },
  "POST /v1/sandboxes/sb-1/fork": { status: 201, json: { snapshot: samples.snapshot("kept"), sandboxes: [SB] } },
  "POST /v1/snapshots": { status: 201, json: samples.snapshot("t") },
  "GET /v1/sandboxes/sb-1/network": { json: samples.network() },
  "PUT /v1/sandboxes/sb-1/network": { json: samples.network() },
};

/** Words, the request, its body */
const CASES: [string[], string, unknown?][] = [
  [
    ["fork", "python", "--network", "open", "--allow", "10.0.0.0/8:5432", "--allow", "a.example", "--egress-limit", "9"],
    "POST /v1/sandboxes",
    { snapshot_tag: "python", n: 1, network: { mode: "open", allow: ["10.0.0.0/8:5432", "a.example"], egress_limit_bytes: 9 } },
  ],
  [
    ["fork", "--from-sandbox", "sb-1", "--allow", "a.example"],
    "POST /v1/sandboxes/sb-1/fork",
    { n: 1, network: { mode: "allow", allow: ["a.example"] } },
  ],
  [["snapshot", "create", "t", "--network", "open"], "POST /v1/snapshots", { tag: "t", network: { mode: "open" } }],
  [
    ["fork", "python", "--network", "open", "--deny", "203.0.113.7", "--deny", "198.51.100.0/24:25"],
    "POST /v1/sandboxes",
    { snapshot_tag: "python", n: 1, network: { mode: "open", deny: ["203.0.113.7", "198.51.100.0/24:25"] } },
  ],
  [["network", "sb-1"], "GET /v1/sandboxes/sb-1/network"],
  [["network", "sb-1", "--set", "none"], "PUT /v1/sandboxes/sb-1/network", { mode: "none" }],
  [
    ["network", "sb-1", "--allow", "*.example:443", "--egress-limit", "0"],
    "PUT /v1/sandboxes/sb-1/network",
    { mode: "allow", allow: ["*.example:443"], egress_limit_bytes: 0 },
  ],
];

for (const [args, line, body] of CASES) {
  test(`forkd ${args.join(" ")}`, async () => {
    await using daemon = await fakeDaemon(ANSWERS);
    const { code, stderr } = await forkd(args, daemon.env);
    assert.equal(code, 0, stderr);
    assert.deepEqual(
      daemon.asked.map((asked) => [`${asked.method} ${asked.path}`, asked.body]),
      [[line, body]],
    );
  });
}

test("contradictory options are usage errors", async () => {
  await using daemon = await fakeDaemon(ANSWERS);
  for (const options of [
    ["--egress-limit", "9"],
    ["--deny", "203.0.113.7"],
    ["--network", "some"],
    ["--allow"],
    ["--network", "open", "--egress-limit", "-1"],
  ])
    assert.equal((await forkd(["fork", "python", ...options], daemon.env)).code, 2, options.join(" "));
  assert.deepEqual(daemon.asked, []);
});

test("network prints the rules, the counters and the last connections", async () => {
  const one = { time: "2026-01-02T03:04:05.678Z", error: null, bytes_up: 10, bytes_down: 2048, ms: 5, open: false };
  const allowed = { ...one, name: "a.example", ip: "2001:db8::1", port: 443, decision: "allowed" as const, reason: "rule a.example" };
  const refused = { ...one, name: "b.example", ip: null, port: null, decision: "refused" as const, reason: "no rule allows the name" };
  const json = samples.network({ egress_limit_bytes: 4096, egress_used_bytes: 1024, recent: [allowed, refused] });
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes/sb-1/network": { json } });
  const { stdout } = await forkd(["network", "sb-1"], daemon.env);
  assert.match(stdout, /^mode +allow\nallow +a\.example\negress limit +1\.0 KiB of 4\.0 KiB used\n/);
  assert.match(stdout, /^03:04:05 +a\.example \(\[2001:db8::1\]:443\) +allowed .*ended +rule a\.example$/m);
  assert.match(stdout, /^03:04:05 +b\.example +refused .*no rule allows the name$/m);
  assert.deepEqual(JSON.parse((await forkd(["network", "sb-1", "--json"], daemon.env)).stdout), json);
});

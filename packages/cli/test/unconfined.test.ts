// The warning about VMs that run without confinement.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";
import * as samples from "./samples.ts";

test("fork warns once that the VMs are not confined, with the reason; inspect shows it", async () => {
  const made = ["sb-1", "sb-2"].map((id) => samples.sandbox(id, { confinement: "none" }));
  const status = { ...samples.status(), confinement: "none", confinement_reason: "making namespaces: EPERM." };
  await using daemon = await fakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: made },
    "GET /v1/status": { json: status },
    "GET /v1/sandboxes/sb-1": { json: made[0] },
  });
  for (const args of [["-q"], ["--json"]]) {
    const { code, stderr } = await forkd(["fork", "python", "-n", "2", ...args], daemon.env);
    assert.equal(code, 0);
    assert.match(stderr, /^Warning: the VMs are not confined: making namespaces: EPERM\. .*forkd doctor.*\n$/);
  }
  daemon.answers["GET /v1/status"] = problem(503, "STOPPING", "It stops.");
  const { code, stderr } = await forkd(["fork", "python", "-n", "2", "-q"], daemon.env);
  assert.equal(code, 0);
  assert.match(stderr, /^Warning: the VMs are not confined\. /);
  assert.match((await forkd(["inspect", "sb-1"], daemon.env)).stdout, /^confinement +none: its VMM can do what the daemon's user can$/m);
});

test("run warns too, on stderr", async () => {
  const status = { ...samples.status(), confinement: "none", confinement_reason: "making namespaces: EPERM." };
  await using daemon = await fakeDaemon({
    "GET /v1/images/mine": { json: samples.image("mine") },
    "POST /v1/snapshots": { status: 201, json: samples.snapshot("run-x") },
    "POST /v1/sandboxes": { status: 201, json: [samples.sandbox("sb-1", { confinement: "none" })] },
    "GET /v1/status": { json: status },
    "POST /v1/sandboxes/sb-1/processes": (_asked, response) => response.end(samples.processEvents({ stdout: "4\n", exit: {} })),
  });
  const { code, stdout, stderr } = await forkd(["run", "--image", "mine", "--", "true"], daemon.env);
  assert.deepEqual([code, stdout], [0, "4\n"]);
  assert.match(stderr, /^Warning: the VMs are not confined: making namespaces: EPERM\. .*forkd doctor.*\n$/);
});

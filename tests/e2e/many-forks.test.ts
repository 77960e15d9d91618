// Many concurrent forks: each is a separate VM, or is rejected for lack of memory.
// Runs alone: it uses all memory of the host, so other VMs would be rejected.

import assert from "node:assert/strict";
import { it } from "node:test";
import { Controller, type ForkdError } from "forkd";
import { rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { assertDistinct } from "../helpers/guest.ts";
import { waitUntilGone } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";

const FORKS = rounds(50, 100);

it(`${FORKS} forks are ${FORKS} separate machines, and all end at once`, async () => {
  await using daemon = await TestDaemon.start();
  await daemon.makePython();
  const forkd = new Controller({ socket: daemon.socket, timeoutMs: patience(), retries: 0 });
  const outcomes = await Promise.allSettled(
    Array.from({ length: FORKS }, async (_, i) => forkd.spawnSandboxes("python", { name: `c-${i}` })),
  );
  const made = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? outcome.value : []));
  for (const outcome of outcomes)
    if (outcome.status === "rejected") assert.equal((outcome.reason as ForkdError).code, "LIMIT_REACHED", String(outcome.reason));
  assert.ok(made.length > 10, `only ${made.length} were made`);
  const facts = made.map(({ id, pid, name, certificate: { identity } }) => ({ id, pid, name, ...identity }));
  for (const what of ["id", "pid", "name", "hostname", "machine_id", "boot_id"] as const)
    assertDistinct(
      what,
      facts.map((fact) => fact[what]),
    );
  assert.deepEqual(new Set(daemon.vmms()), new Set(made.map(({ pid }) => pid)));
  assert.equal((await forkd.listSandboxes()).length, made.length);
  // the guest reports the same values as its certificate
  const asked = await Promise.all(
    made
      .slice(0, 10)
      .map(async ({ id }) => forkd.execCommand(id, ["sh", "-c", "hostname; cat /etc/machine-id"], { timeoutSecs: patience() / 1000 })),
  );
  assert.deepEqual(
    asked.map(({ stdout }) => stdout.trim().split("\n")),
    made.slice(0, 10).map(({ certificate: { identity } }) => [identity.hostname, identity.machine_id]),
  );
  await Promise.all(made.map(async ({ id }) => forkd.killSandbox(id)));
  assert.deepEqual(await waitUntilGone(made.map(({ pid }) => pid ?? 0)), []);
});

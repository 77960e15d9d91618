// A sandbox counts as used exactly as long as connections to its servers are in use.

import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { Ports } from "../../src/service/ports.ts";
import { Sandboxes } from "../../src/service/sandboxes.ts";
import type { Entry } from "../../src/service/registry.ts";

type Fixture = { sandboxes: Sandboxes; ports: Ports; entry: Entry; open: PassThrough[]; sandbox: { alive: boolean } };

function make(over: { state?: string; autoResume?: number; connect?: () => Promise<PassThrough> } = {}): Fixture {
  const open: PassThrough[] = [];
  const connect = async (): Promise<PassThrough> => {
    const socket = new PassThrough();
    open.push(socket);
    return socket;
  };
  const sandbox = { id: "sb-1", alive: true, connect: over.connect ?? connect };
  const entry = {
    row: { id: "sb-1", state: over.state ?? "running", auto_resume: over.autoResume ?? 0 },
    sandbox,
    uses: 0,
    lastActive: 0,
  } as unknown as Entry;
  const registry = { get: () => entry, byId: () => undefined, find: (name: string) => (name === "web" ? entry : undefined) } as never;
  const wake = async ({ row }: Entry): Promise<void> => void (row.state = "running");
  const sandboxes = new Sandboxes({} as never, { registry, limits: {} as never, snapshots: {} as never, wake });
  return { sandboxes, ports: new Ports({ sandboxes, registry }), entry, open, sandbox };
}

const VIEWER = { project: "default" };

test("a sandbox counts as used until the release, which is idempotent", async () => {
  const { ports, entry } = make();
  const first = await ports.open("web", VIEWER);
  const second = await ports.open("sb-1", VIEWER);
  assert.deepEqual([first.id, entry.uses], ["sb-1", 2]);
  first.close();
  first.close();
  assert.deepEqual([entry.uses, entry.lastActive > 0], [1, true]);
  second.close();
  assert.equal(entry.uses, 0);
});

test("a lookup neither uses nor resumes a sandbox", async () => {
  const running = make();
  const looked = await running.sandboxes.use("sb-1", VIEWER, async ({ id }) => [id, running.entry.uses], { isUse: false });
  assert.deepEqual([looked, running.entry.uses, running.entry.lastActive], [["sb-1", 0], 0, 0]);
  const asleep = make({ state: "suspended", autoResume: 1 });
  asleep.entry.sandbox = undefined;
  await assert.rejects(asleep.sandboxes.lease("sb-1", VIEWER, { isUse: false }), { code: "SANDBOX_SUSPENDED" });
  assert.equal(asleep.entry.row.state, "suspended");
});

test("a kept connection does not count", async () => {
  const { ports, entry, open } = make();
  const sandbox = await ports.open("web", VIEWER);
  await sandbox.connect(80);
  sandbox.close();
  assert.deepEqual([entry.uses, open[0]?.destroyed], [0, false]);
});

test("a paused sandbox is not used", async () => {
  const { ports, entry } = make({ state: "paused" });
  await assert.rejects(ports.open("web", VIEWER), { code: "SANDBOX_PAUSED" });
  assert.equal(entry.uses, 0);
});

test("a sandbox being suspended is waited for, and resumed where allowed", async () => {
  for (const autoResume of [0, 1]) {
    const { ports, entry } = make({ autoResume });
    const over = Promise.withResolvers<void>();
    entry.transition = over.promise.then(() => {
      entry.transition = undefined;
      entry.row.state = "suspended";
      if (autoResume === 0) entry.sandbox = undefined;
    });
    const opened = ports.open("web", VIEWER);
    over.resolve();
    if (autoResume === 1) (await opened).close();
    else await assert.rejects(opened, { code: "SANDBOX_SUSPENDED" });
    assert.deepEqual([entry.row.state, entry.uses], [autoResume === 1 ? "running" : "suspended", 0]);
  }
});

test("a suspended sandbox resumes where allowed", async () => {
  const { ports, entry } = make({ state: "suspended", autoResume: 1 });
  const sandbox = await ports.open("web", VIEWER);
  assert.deepEqual([sandbox.id, entry.row.state, entry.uses], ["sb-1", "running", 1]);
  const asleep = make({ state: "suspended" });
  Object.assign(asleep.entry, { sandbox: undefined });
  await assert.rejects(asleep.ports.open("web", VIEWER), { code: "SANDBOX_SUSPENDED" });
});

test("connections are bounded, and closed or failed ones make space", async () => {
  const { ports, open, sandbox: vm } = make();
  const sandbox = await ports.open("web", VIEWER);
  for (let i = 0; i < 1024; i++) await sandbox.connect(80);
  await assert.rejects(sandbox.connect(80), { code: "BUSY" });
  await new Promise((resolve) => open[0]?.once("close", resolve).destroy());
  await sandbox.connect(80);
  await assert.rejects(sandbox.connect(80), { code: "BUSY" });
  assert.equal(vm.alive, true);
  const failing = await make({ connect: () => Promise.reject(new ForkdError("PORT_CLOSED", "no")) }).ports.open("web", VIEWER);
  for (let i = 0; i < 1100; i++) await assert.rejects(failing.connect(80), { code: "PORT_CLOSED" });
});

test("a failure caused by the sandbox's end is reported as its end", async () => {
  const lost = new ForkdError("AGENT_LOST", "The connection to the guest's agent has ended.");
  const { ports, sandbox: vm } = make({ connect: () => Promise.reject(lost) });
  const sandbox = await ports.open("web", VIEWER);
  await assert.rejects(sandbox.connect(80), { code: "AGENT_LOST" });
  vm.alive = false;
  await assert.rejects(sandbox.connect(80), { code: "VMM_EXITED" });
  assert.equal((sandbox.explain(lost) as ForkdError).code, "VMM_EXITED");
});

test("names resolve to ids", () => {
  const { ports } = make();
  assert.deepEqual([ports.find("web")?.id, ports.find("other")?.id], ["sb-1", undefined]);
});

// Owners of sandboxes: metadata, leases, the end of a connection.

import assert from "node:assert/strict";
import { test } from "node:test";
import { NotFoundError, type Controller } from "forkd";
import { Connection, idleOwner, OWNER_KEY, type OwnerFields } from "../src/owner.ts";

/** The part of a daemon that an owner uses */
function fakeDaemon(): { forkd: Controller; alive: Map<string, OwnerFields>; renewed: string[] } {
  const alive = new Map<string, OwnerFields>();
  const renewed: string[] = [];
  const forkd = {
    listSandboxes: async ({ metadata }: { metadata: Record<string, string> }) =>
      [...alive].filter(([, { metadata: labels }]) => labels[OWNER_KEY] === metadata[OWNER_KEY]).map(([id]) => ({ id })),
    updateSandbox: async (id: string) => renewed.push(id),
    killSandbox: async (id: string) => {
      if (!alive.delete(id)) throw new NotFoundError("NOT_FOUND", "gone");
    },
  };
  return { forkd: forkd as unknown as Controller, alive, renewed };
}

function connectionTo(forkd: Controller, errors: unknown[] = []): Connection {
  return new Connection({ connect: async () => forkd, leaseSecs: 600, onError: (error) => errors.push(error) });
}

test("a connection ends its own sandboxes and no others", async () => {
  const { forkd, alive, renewed } = fakeDaemon();
  const [one, other] = [connectionTo(forkd), connectionTo(forkd)];
  await one.make(async (fields) => alive.set("mine", fields));
  await other.make(async (fields) => alive.set("other", fields));
  assert.equal(alive.get("mine")?.ttlSecs, 600);
  await one.renew();
  assert.deepEqual(renewed, ["mine"]);
  await one.close();
  assert.deepEqual([...alive.keys()], ["other"]);
  await other.close();
});

test("a creation in progress when the connection ends is ended too", async () => {
  const { forkd, alive } = fakeDaemon();
  const connection = connectionTo(forkd);
  const gate = Promise.withResolvers<void>();
  const making = connection.make(async (fields) => {
    await gate.promise;
    alive.set("late", fields);
  });
  const closing = connection.close();
  gate.resolve();
  await Promise.all([making, closing]);
  assert.equal(alive.size, 0);
});

test("a connection without sandboxes sends no request at its end", async () => {
  const connection = new Connection({ connect: () => assert.fail("nothing to do"), leaseSecs: 600, onError: () => assert.fail() });
  await connection.close();
});

test("an ended sandbox is no error, and an unreachable daemon is reported", async () => {
  const { forkd, alive } = fakeDaemon();
  const errors: unknown[] = [];
  const onError = (error: unknown): unknown => errors.push(error);
  const connection = connectionTo(forkd, errors);
  await connection.make(async (fields) => alive.set("mine", fields));
  const list = forkd.listSandboxes.bind(forkd);
  forkd.listSandboxes = async (opts) => {
    const found = await list(opts);
    alive.clear();
    return found;
  };
  await connection.close();
  assert.deepEqual(errors, []);

  const broken = new Connection({
    connect: () => Promise.reject(new Error("no daemon")),
    leaseSecs: 600,
    onError,
  });
  await broken.make(async () => undefined);
  await broken.close();
  assert.match(String(errors[0]), /no daemon/);
});

test("without a connection a sandbox has an idle time-out", async () => {
  const fields = await idleOwner(300).make(async (given) => given);
  assert.deepEqual(fields, { metadata: { [OWNER_KEY]: "none" }, idleTimeoutSecs: 300 });
});

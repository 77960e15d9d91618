// Watches that buffer changes until the client fetches them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejection } from "../../../../tests/helpers/guest.ts";
import { changesOf } from "../../src/e2b/envd/watch.ts";
import { Watchers } from "../../src/e2b/envd/watchers.ts";
import type { FileEvent } from "../../src/api/files.ts";

const QUERY = { path: "/w", recursive: false, debounce_ms: 0 };

/** A guest that reports changes only on a flush request */
class FakeGuest {
  readonly happened: FileEvent[] = [];
  #wake = Promise.withResolvers<void>();
  #asked: (() => void)[] = [];

  async watch(
    _id: string,
    _query: unknown,
    _caller: unknown,
    onFlush?: (flush: () => Promise<void>) => void,
  ): Promise<AsyncIterable<FileEvent>> {
    onFlush?.(
      async () =>
        new Promise((resolve) => {
          this.#asked.push(resolve);
          this.#wake.resolve();
        }),
    );
    return this.#events();
  }

  async *#events(): AsyncGenerator<FileEvent> {
    try {
      for (;;) {
        await this.#wake.promise;
        this.#wake = Promise.withResolvers();
        yield* this.happened.splice(0);
        for (const resolve of this.#asked.splice(0)) resolve();
      }
    } finally {
      for (const resolve of this.#asked.splice(0)) resolve();
    }
  }

  watchers(): Watchers {
    const services = { manager: { files: this }, daemon: { stopping: new AbortController().signal } };
    return new Watchers(services as unknown as ConstructorParameters<typeof Watchers>[0]);
  }
}

async function watched(guest: FakeGuest): Promise<{ take: () => Promise<string[]> }> {
  const watchers = guest.watchers();
  const id = await watchers.create({ id: "sb", project: "default" }, QUERY, (events) => changesOf(events, "/w"));
  return { take: async () => (await watchers.take("sb", id)).map(({ type, name }) => `${type.replace("EVENT_TYPE_", "")} ${name}`) };
}

function event(type: FileEvent["type"], name = "a"): FileEvent {
  return { type, path: `/w/${name}`, directory: false };
}

test("an answer has all changes before the request, and each once", async () => {
  const guest = new FakeGuest();
  const { take } = await watched(guest);
  assert.deepEqual(await take(), []);
  for (let round = 0; round < 3; round++) {
    guest.happened.push(event("created"), event("attributes"), event("modified"));
    assert.deepEqual(await take(), ["CREATE a", "CHMOD a", "WRITE a"]);
    assert.deepEqual(await take(), []);
  }
});

test("lost changes are an error, after the known ones", async () => {
  const guest = new FakeGuest();
  const { take } = await watched(guest);
  guest.happened.push(event("created"), { type: "overflow" });
  assert.deepEqual(await take(), ["CREATE a"]);
  assert.match((await rejection(take(), "FILE_FAILED")).message, /changes were lost/);
});

test("more changes than the buffer holds are an error", async () => {
  const guest = new FakeGuest();
  const { take } = await watched(guest);
  guest.happened.push(...Array.from({ length: 10_001 }, (_, at) => event("created", String(at))));
  assert.equal((await take()).length, 10_000);
  assert.match((await rejection(take(), "FILE_FAILED")).message, /10000 changes were not fetched/);
});

test("the buffer is bounded in bytes, for long names", async () => {
  const guest = new FakeGuest();
  const { take } = await watched(guest);
  guest.happened.push(...Array.from({ length: 100 }, (_, at) => event("created", `${at}${"x".repeat(60_000)}`)));
  const kept = (await take()).reduce((sum, change) => sum + change.length, 0);
  assert.ok(kept > 900_000 && kept <= 1024 * 1024, `${kept} bytes were kept`);
  assert.match((await rejection(take(), "FILE_FAILED")).message, /changes were not fetched/);
});

test("one sandbox cannot use all watchers", async () => {
  const guest = new FakeGuest();
  const watchers = guest.watchers();
  const ids: string[] = [];
  const create = async (sandbox: string): Promise<void> =>
    void ids.push(await watchers.create({ id: sandbox, project: "default" }, QUERY, (events) => changesOf(events, "/w")));
  for (let at = 0; at < 32; at++) await create("sb");
  assert.match((await rejection(create("sb"), "BUSY")).message, /32 watchers already/);
  await create("sb-other");
  watchers.remove("sb", ids[0] ?? "");
  await create("sb");
});

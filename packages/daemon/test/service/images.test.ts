// Images in the daemon: access to the host's files, and removal of images in use.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ImageStore } from "@forkd/runtime/image/store";
import { Images } from "../../src/service/images.ts";
import { NO_LABELS } from "../../src/service/snapshot-labels.ts";
import { Db } from "../../src/store/db.ts";
import { EventLog } from "../../src/store/events.ts";
import { tablesOf } from "../../src/store/tables.ts";
import { tarOf } from "../../../runtime/test/image/helpers/tar.ts";
import { leftovers, tempDir, tempHome } from "../../../runtime/test/image/helpers/temp-home.ts";
import type { TestContext } from "node:test";
import type { CreateImage } from "../../src/api/image.ts";
import type { Caller } from "../../src/service/caller.ts";
import type { Core } from "../../src/service/core.ts";
import type { SnapshotRow, Tables } from "../../src/store/tables.ts";
import type { Home } from "@forkd/runtime/home";

type Fixture = { images: Images; home: Home; tables: Tables; events: EventLog; archive: string; snapshots: string[] };

const ROW: Omit<SnapshotRow, "id" | "tag" | "status" | "image"> = {
  project: "default",
  visibility: "private",
  expires_at: null,
  bytes: null,
  error: null,
  announced: 0,
  ephemeral: 0,
  memory_mib: 128,
  vcpus: 1,
  disk_mib: null,
  parent_tag: null,
  branched_from: null,
  pause_ms: null,
  delta_bytes: null,
  pool: 0,
  shares: [],
  ...NO_LABELS,
  warnings: [],
  created_by: "local",
  created_at: 1,
};

async function fixture(t: TestContext): Promise<Fixture> {
  const home = await tempHome(t);
  const dir = await tempDir(t);
  const db = new Db(join(dir, "state.db"));
  t.after(() => db.close());
  const archive = join(dir, "x.tar");
  await writeFile(archive, tarOf([{ path: "etc/" }, { path: "etc/motd", content: "hello" }]));
  const tables = tablesOf(db);
  const events = new EventLog(db);
  /** image ids of stored snapshots, tagged or not */
  const snapshots: string[] = [];
  const runtime = {
    images: new ImageStore(home),
    snapshots: { everything: async () => snapshots.map((imageId) => ({ manifest: { id: "sn-x", tag: "x", imageId } })) },
  };
  const images = new Images({ home, db, tables, events, runtime, settings: { confinement: "preferred" } } as unknown as Core);
  return { images, home, tables, events, archive, snapshots };
}

function caller(principal = "local"): Caller {
  return { principal, project: "default", maxSandboxes: null, requestId: "r", signal: new AbortController().signal };
}

test("an archive is imported, with an event, and its answer is stored", async (t) => {
  const { images, events, archive } = await fixture(t);
  const steps: string[] = [];
  const remembered: unknown[] = [];
  const created = await images.create(
    { name: "x", file: archive },
    { ...caller(), progress: ({ step }) => void steps.push(step), remember: (status, body) => void remembered.push(status, body) },
  );
  assert.partialDeepStrictEqual(created, { names: ["x"], source: { kind: "import", file: "x.tar", format: "rootfs" }, reused: false });
  assert.deepEqual(remembered, [201, created]);
  assert.ok(steps.length > 0);
  assert.deepEqual(
    (await images.list(caller())).map(({ id }) => id),
    [created.id],
  );
  assert.equal("reused" in (await images.get("x", caller())), false);
  assert.partialDeepStrictEqual(events.list("default", { since: 0 }), [
    { type: "image.created", principal: "local", metadata: { image: "x" } },
  ]);
});

test("the limit of the unpacked size is enforced", async (t) => {
  const { images, home, archive, events } = await fixture(t);
  await assert.rejects(images.create({ name: "x", file: archive, max_bytes: 100 }, caller()), { code: "IMAGE_TOO_LARGE" });
  assert.deepEqual([await images.list(caller()), events.list("default", { since: 0 }), await leftovers(home)], [[], [], []]);
});

const FOREIGN: [field: string, what: string, request: CreateImage][] = [
  ["file", "names files of", { name: "x", file: "/etc/passwd" }],
  ["copy", "names files of", { name: "x", packages: [], copy: [{ from: "/etc", to: "/etc" }] }],
  ["mirror", "names files of", { name: "x", packages: [], mirror: "file:///srv/debian" }],
  ["run", "runs commands on", { name: "x", packages: [], run: ["id"] }],
];

for (const [field, what, request] of FOREIGN) {
  test(`${field} is only for the daemon's own user`, async (t) => {
    const { images, home } = await fixture(t);
    const message = new RegExp(`^Cannot use ${field}: it ${what} the daemon's machine`);
    await assert.rejects(images.create(request, caller("ci")), { code: "FORBIDDEN", message });
    assert.deepEqual(await leftovers(home), []);
  });
}

test("a password is in no event and no error", async (t) => {
  const { images, events } = await fixture(t);
  const request = { reference: "127.0.0.1:1/x", username: "me", password: "hunter2" };
  const error: unknown = await images.create({ ...request, reference: "127.0.0.1:1/X" }, caller()).catch((reason: unknown) => reason);
  assert.doesNotMatch(JSON.stringify([String(error), error, events.list("default", { since: 0 })]), /hunter2/);
});

test("an image stays while a snapshot needs it, tagged or not", async (t) => {
  const { images, archive, snapshots, events } = await fixture(t);
  const { id } = await images.create({ name: "x", file: archive }, caller());
  snapshots.push(id);
  await assert.rejects(images.remove("x", caller()), { code: "IN_USE" });
  await assert.rejects(images.remove(id, caller()), { code: "IN_USE" });
  snapshots.pop();
  await images.remove("x", caller("ci"));
  assert.deepEqual(await images.list(caller()), []);
  assert.partialDeepStrictEqual(events.list("default", { since: 0 }).at(-1), {
    type: "image.deleted",
    principal: "ci",
    metadata: { image: "x" },
  });
  await assert.rejects(images.remove("x", caller()), { code: "NOT_FOUND" });
});

test("an image stays while a snapshot is being made from it, by any of its names", async (t) => {
  const { images, home, tables, archive } = await fixture(t);
  const { id } = await images.create({ name: "x", file: archive }, caller());
  for (const image of ["x", id, id.slice(0, 15)]) {
    tables.snapshots.insert({ ...ROW, id: "sn-1", tag: "t", status: "writing", image });
    await assert.rejects(images.remove("x", caller()), { code: "IN_USE" }, image);
    await assert.rejects(images.remove(id, caller()), { code: "IN_USE" }, image);
    tables.snapshots.delete("sn-1");
  }

  // the name in the snapshot's request is in use; another name of the image can be removed
  await new ImageStore(home).tag("y", id);
  tables.snapshots.insert({ ...ROW, id: "sn-1", tag: "t", status: "writing", image: "y" });
  await assert.rejects(images.remove("y", caller()), { code: "IN_USE" });
  await images.remove("x", caller());
  await assert.rejects(images.remove(id, caller()), { code: "IN_USE" });

  // neither a failed snapshot nor one of a removed image keeps an image in use
  tables.snapshots.update("sn-1", { status: "failed" });
  tables.snapshots.insert({ ...ROW, id: "sn-2", tag: "u", status: "writing", image: "gone" });
  await images.remove("y", caller());
  assert.deepEqual(await images.list(caller()), []);
});

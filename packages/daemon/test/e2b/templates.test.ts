// Templates that are made on first use.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "../../src/errors.ts";
import { Templates } from "../../src/e2b/templates/templates.ts";
import { fakeManager } from "../http/helpers/fake-manager.ts";
import { silent } from "../http/helpers/serve.ts";
import type { CreatedImage } from "../../src/api/image.ts";
import type { SnapshotInfo } from "../../src/api/snapshot.ts";
import type { Services } from "../../src/http/services.ts";

const CALLER = { requestId: "r" };

function fixture(): { templates: Templates; made: string[]; fail: { next: Error | null } } {
  const made: string[] = [];
  const tags = new Set(["mine"]);
  const fail: { next: Error | null } = { next: null };
  const manager = fakeManager({
    images: {
      create: async (request) => {
        made.push(`image ${request.name}`);
        const failure = fail.next;
        fail.next = null;
        if (failure) throw failure;
        return { id: "sha", names: [request.name] } as CreatedImage;
      },
    },
    snapshots: {
      get: async (tag) => {
        if (!tags.has(tag)) throw new ForkdError("NOT_FOUND", `There is no snapshot ${tag}.`);
        return { tag, id: `sn-${tag}`, status: "ready" } as SnapshotInfo;
      },
      create: async (request) => {
        made.push(`snapshot ${request.tag} of ${request.image}`);
        tags.add(request.tag);
        return { tag: request.tag } as SnapshotInfo;
      },
    },
  });
  const daemon = { stopping: new AbortController().signal } as Services["daemon"];
  return { templates: new Templates({ manager, daemon, log: silent }), made, fail };
}

test("one that everybody has is made once, for all who ask", async () => {
  const { templates, made } = fixture();
  const found = await Promise.all(["base", "base:default", "team/base"].map(async (id) => templates.find(id, CALLER)));
  assert.deepEqual(
    found.map(({ tag }) => tag),
    ["base", "base", "base"],
  );
  await templates.find("base", CALLER);
  assert.deepEqual(made, ["image e2b-base", "snapshot base of e2b-base"]);
});

test("one that could not be made is tried again by who asks next", async () => {
  const { templates, made, fail } = fixture();
  fail.next = new ForkdError("HOST_TOOL_MISSING", "There is no mmdebstrap.");
  await assert.rejects(templates.find("base", CALLER), /no mmdebstrap/);
  await templates.find("base", CALLER);
  assert.deepEqual(made, ["image e2b-base", "image e2b-base", "snapshot base of e2b-base"]);
});

test("others are what there is", async () => {
  const { templates, made } = fixture();
  assert.equal((await templates.find("mine", CALLER)).id, "sn-mine");
  await assert.rejects(templates.find("yours", CALLER), /no snapshot yours/);
  assert.deepEqual(made, []);
});

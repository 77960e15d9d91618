// E2B's built-in templates, which are built from their recipes on first use.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { TEMPLATE_RECIPES, Templates } from "../../src/e2b/templates/templates.ts";
import { loadIncluded } from "../../src/recipe/library.ts";
import { fakeManager } from "../helpers/fake-manager.ts";
import { silent } from "../helpers/serve.ts";
import type { BuiltRecipe } from "../../src/api/recipes.ts";
import type { SnapshotInfo } from "../../src/api/snapshot.ts";
import type { Services } from "../../src/dispatch/services.ts";

const CALLER = { requestId: "r", project: "default" };

function fixture(): { templates: Templates; made: string[]; fail: { next: Error | null } } {
  const made: string[] = [];
  const tags = new Set(["mine"]);
  const fail: { next: Error | null } = { next: null };
  const manager = fakeManager({
    snapshots: {
      get: async (tag) => {
        if (!tags.has(tag)) throw new ForkdError("NOT_FOUND", `There is no snapshot ${tag}.`);
        return { tag, id: `sn-${tag}`, status: "ready" } as SnapshotInfo;
      },
    },
  });
  const recipes = {
    buildIncluded: async (name: string): Promise<BuiltRecipe> => {
      made.push(name);
      const failure = fail.next;
      fail.next = null;
      if (failure) throw failure;
      tags.add((await loadIncluded(name)).tag);
      return {} as BuiltRecipe;
    },
  } as unknown as Services["recipes"];
  const daemon = { stopping: new AbortController().signal } as Services["daemon"];
  return { templates: new Templates({ manager, recipes, daemon, log: silent }), made, fail };
}

for (const [tag, recipe] of Object.entries(TEMPLATE_RECIPES))
  test(`the recipe ${recipe} builds the template ${tag}`, async () => assert.equal((await loadIncluded(recipe)).tag, tag));

test("a template is built once for all requests that wait for it", async () => {
  const { templates, made } = fixture();
  const found = await Promise.all(["base", "base:default", "team/base"].map(async (id) => templates.find(id, CALLER)));
  assert.deepEqual(
    found.map(({ tag }) => tag),
    ["base", "base", "base"],
  );
  await templates.find("base", CALLER);
  assert.deepEqual(made, ["e2b-base"]);
});

test("after a failure the next request builds it again", async () => {
  const { templates, made, fail } = fixture();
  fail.next = new ForkdError("HOST_TOOL_MISSING", "There is no mmdebstrap.");
  await assert.rejects(templates.find("base", CALLER), /no mmdebstrap/);
  await templates.find("base", CALLER);
  assert.deepEqual(made, ["e2b-base", "e2b-base"]);
});

test("other templates are existing snapshots", async () => {
  const { templates, made } = fixture();
  assert.equal((await templates.find("mine", CALLER)).id, "sn-mine");
  await assert.rejects(templates.find("yours", CALLER), /no snapshot yours/);
  assert.deepEqual(made, []);
});

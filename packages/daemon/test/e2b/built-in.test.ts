// The templates that the daemon makes by itself are the recipes of the same name, line by line.

import assert from "node:assert/strict";
import { test } from "node:test";
import { loadRecipe } from "../../../cli/src/recipe/find.ts";
import { BUILT_IN } from "../../src/e2b/templates/built-in.ts";

for (const [tag, { image, snapshot }] of Object.entries(BUILT_IN))
  test(`the template ${tag} is the recipe ${image.name}`, async () => {
    const found = await loadRecipe(image.name ?? "");
    const { recipe } = found;
    assert.equal(found.tag, tag);
    assert.ok(recipe.image.kind === "packages");
    const { packages, run } = recipe.image;
    assert.deepEqual(image, { name: recipe.name, packages, run });
    assert.deepEqual(
      { memory_mib: snapshot.memory_mib, exec: snapshot.warm_up?.exec ?? [], kernels: snapshot.warm_up?.kernels ?? [] },
      {
        memory_mib: recipe.machine?.memory_mib,
        exec: recipe.steps.map((step) => (step.kind === "exec" ? step.exec : step)),
        kernels: recipe.kernels ?? [],
      },
    );
  });

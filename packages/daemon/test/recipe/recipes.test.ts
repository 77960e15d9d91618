// Builds: reused layers, cleanup after a failure, and concurrent builds of one tag.

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { describe, it, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { prepareHome, resolveHome } from "@forkd/runtime/home";
import { Recipes } from "../../src/recipe/recipes.ts";
import { silent, tempDir } from "../helpers/serve.ts";
import { CALLER, FakeService } from "./helpers/fake-service.ts";
import { tarOf } from "./helpers/tar.ts";
import type { TestContext } from "node:test";
import type { BuiltRecipe } from "../../src/api/recipes.ts";
import type { Home } from "@forkd/runtime/home";

const HEAD = "name: x\ndescription: A test.\n";

type Fixture = {
  fake: FakeService;
  recipes: Recipes;
  home: Home;
  build: (
    yaml: string,
    opts?: { signal?: AbortSignal; files?: Record<string, string>; steps?: string[]; test?: boolean },
  ) => Promise<BuiltRecipe>;
};

async function fixture(t: TestContext): Promise<Fixture> {
  const dir = await tempDir(t);
  const home = await prepareHome(resolveHome({ FORKD_HOME: dir, FORKD_RUN: dir }));
  const fake = new FakeService();
  fake.add("base");
  const recipes = new Recipes(fake.services, { home, log: silent });
  return {
    fake,
    recipes,
    home,
    build: async (yaml, { signal = CALLER.signal, files = {}, steps = [], test: isTest } = {}) =>
      recipes.build({ test: isTest }, tarOf({ "recipe.yaml": `${HEAD}${yaml}`, ...files }), {
        ...CALLER,
        signal,
        progress: ({ step }) => void steps.push(step),
      }),
  };
}

function cachedOf({ steps }: BuiltRecipe): boolean[] {
  return steps.filter(({ title }) => title.startsWith("[")).map(({ cached }) => cached);
}

test("a snapshot has the description of its recipe, also one that is otherwise unchanged", async (t) => {
  const { fake, recipes } = await fixture(t);
  const build = async (text: string): Promise<BuiltRecipe> =>
    recipes.build(
      {},
      tarOf({ "recipe.yaml": `name: x\ndescription: ${text}\nimage: { snapshot: base }\nsteps: [{ exec: [one] }]\n` }),
      CALLER,
    );
  await build("First.");
  assert.equal(fake.snapshotsByTag.get("x")?.description, "First.");
  assert.equal((await build("Second.")).unchanged, true);
  assert.equal(fake.snapshotsByTag.get("x")?.description, "Second.");
  await build("Second.");
  assert.deepEqual(
    fake.log.filter((entry) => entry === "describe x"),
    ["describe x"],
  );
  await assert.rejects(build("a".repeat(1025)), { code: "RECIPE_INVALID", message: /description.*at most 1024/ });
});

test("a build boots the image, runs the steps, and publishes one snapshot", async (t) => {
  const { fake, build, home } = await fixture(t);
  const built = await build("image: { packages: [python3] }\nfiles: [{ from: ./a, to: /a }]\nsteps: [{ exec: [one] }]", {
    files: { a: "A" },
  });
  assert.deepEqual(fake.log, ["image x", "boot", "write /a A", "exec one", "publish x"]);
  assert.deepEqual(fake.snapshotsByTag.get("x")?.history, ["boot", "write /a", "one"]);
  assert.deepEqual([built.tag, built.unchanged, cachedOf(built)], ["x", false, [false, false, false]]);
  assert.equal(fake.tags().filter((tag) => tag.startsWith("build-x-")).length, 3);
  assert.equal(fake.sandboxesById.size, 0);
  assert.deepEqual(await readdir(home.staging), [], "files of the upload remain");
});

test("only steps after a change are repeated, in any recipe with the same steps", async (t) => {
  const { fake, build } = await fixture(t);
  const steps = (second: string): string => `image: { snapshot: base }\nsteps: [{ exec: [one] }, { exec: [${second}] }]`;
  await build(steps("two"));
  const again = await build(steps("two"));
  assert.equal(again.unchanged, true);
  assert.deepEqual(cachedOf(await build(steps("zwei"))), [true, false]);
  const other = await build(`tag: y\n${steps("zwei")}`);
  assert.deepEqual(cachedOf(other), [true, true]);
  assert.deepEqual(fake.log, ["exec one", "exec two", "publish x", "exec zwei", "publish x", "publish y"]);
  assert.equal(fake.tags().filter((tag) => tag.startsWith("build-x-")).length, 2, "the unused layer is removed");
});

test("a failing step keeps the older snapshot and the layers before it, and its output is in the error", async (t) => {
  const { fake, build } = await fixture(t);
  await build("image: { snapshot: base }\nsteps: [{ exec: [one] }]");
  const before = fake.snapshotsByTag.get("x")?.id;
  fake.exec = ([program]) => (program === "bad" ? { exit_code: 7, stdout: "what went wrong\n" } : {});
  await assert.rejects(build("image: { snapshot: base }\nsteps: [{ exec: [one] }, { exec: [bad] }]"), {
    code: "BUILD_FAILED",
    message: "Cannot build x: the step “bad” failed: it ended with exit code 7.",
    details: { output: "what went wrong\n" },
  });
  assert.equal(fake.snapshotsByTag.get("x")?.id, before);
  assert.equal(fake.sandboxesById.size, 0);
  assert.equal(fake.tags().filter((tag) => tag.startsWith("build-x-")).length, 1);
});

test("a failing test keeps the tag, and the candidate is removed", async (t) => {
  const { fake, build } = await fixture(t);
  const yaml = 'image: { snapshot: base }\nsteps: [{ exec: [one] }]\ntests: [{ name: says, exec: [say], expect: { stdout: "^yes$" } }]';
  fake.exec = () => ({ stdout: "no\n" });
  await assert.rejects(build(yaml, { test: true }), {
    code: "TESTS_FAILED",
    message: /1 of 1 tests of x failed: “says”: its stdout does not match/,
  });
  assert.ok(
    fake.tags().every((tag) => tag === "base" || tag.startsWith("build-x-")),
    fake.tags().join(),
  );
  fake.exec = () => ({ stdout: "yes\n" });
  assert.deepEqual(
    (await build(yaml, { test: true })).tests.map(({ name }) => name),
    ["says"],
  );
});

test("two builds of one tag at the same time: the second waits, and reuses all layers", async (t) => {
  const { fake, build } = await fixture(t);
  const release = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  let running = 0;
  let most = 0;
  fake.exec = async () => {
    most = Math.max(most, ++running);
    begun.resolve();
    await release.promise;
    running--;
    return {};
  };
  const yaml = "image: { snapshot: base }\nsteps: [{ exec: [one] }, { exec: [two] }]";
  const steps: string[] = [];
  const both = [build(yaml)];
  await begun.promise;
  both.push(build(yaml, { steps }));
  while (!steps.includes("Waiting for another build of x")) await sleep(1);
  release.resolve();
  const [first, second] = await Promise.all(both);
  assert.deepEqual([first?.unchanged, second?.unchanged, most], [false, true, 1]);
  assert.equal(first?.snapshot.id, second?.snapshot.id);
  assert.deepEqual(fake.log, ["exec one", "exec two", "publish x"]);
});

test("a waiting build can be cancelled, and a later one still waits for the first", async (t) => {
  const { fake, build } = await fixture(t);
  const release = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  fake.exec = async () => {
    begun.resolve();
    await release.promise;
    return {};
  };
  const yaml = "image: { snapshot: base }\nsteps: [{ exec: [one] }]";
  const waiting = (steps: string[]): boolean => steps.includes("Waiting for another build of x");
  const first = build(yaml);
  await begun.promise;
  const cancel = new AbortController();
  const [second, third] = [[], []] as [string[], string[]];
  const cancelled = build(yaml, { signal: cancel.signal, steps: second });
  while (!waiting(second)) await sleep(1);
  const last = build(yaml, { steps: third });
  while (!waiting(third)) await sleep(1);
  cancel.abort(new Error("gone"));
  await assert.rejects(cancelled, /gone/);
  assert.deepEqual(fake.log, []);
  release.resolve();
  assert.deepEqual([(await first).unchanged, (await last).unchanged], [false, true]);
});

test("a cancelled build leaves finished layers and nothing else", async (t) => {
  const { fake, build, home } = await fixture(t);
  const cancel = new AbortController();
  fake.exec = async ([program], signal) => {
    if (program !== "slow") return {};
    cancel.abort(new Error("gone"));
    signal.throwIfAborted();
    return {};
  };
  const yaml = "image: { snapshot: base }\nsteps: [{ exec: [one] }, { exec: [slow] }, { exec: [three] }]";
  await assert.rejects(build(yaml, { signal: cancel.signal }), /gone/);
  assert.equal(fake.sandboxesById.size, 0);
  assert.equal(fake.tags().length, 2);
  assert.match(fake.tags()[1] ?? "", /^build-x-/);
  assert.deepEqual(await readdir(home.staging), []);
});

test("the sandbox and the candidate of an earlier daemon's build are removed, not its layers", async (t) => {
  const { fake, recipes, build } = await fixture(t);
  await build("image: { snapshot: base }\nsteps: [{ exec: [one] }]");
  const before = fake.tags();
  fake.add("br-left", { "forkd.build": "x", "forkd.recipe": "x" });
  fake.sandboxesById.set("sb-left", { id: "sb-left", metadata: { "forkd.build": "x" }, history: [], from: "base" });
  fake.sandboxesById.set("sb-mine", { id: "sb-mine", metadata: {}, history: [], from: "base" });
  await (
    await recipes.leftovers("daemon")
  )();
  assert.deepEqual([fake.tags(), [...fake.sandboxesById.keys()]], [before, ["sb-mine"]]);
});

test("a recipe is built on another one of the upload, which is built first when it changed", async (t) => {
  const { fake, recipes } = await fixture(t);
  const upper = "name: upper\ndescription: x\nimage: { recipe: lower }\nsteps: [{ exec: [up] }]\n";
  const lower = (word: string): string => `name: lower\ndescription: x\nimage: { snapshot: base }\nsteps: [{ exec: [${word}] }]\n`;
  const build = async (word: string): Promise<BuiltRecipe> =>
    recipes.build({ recipe: "upper" }, tarOf({ "upper/recipe.yaml": upper, "lower/recipe.yaml": lower(word) }), CALLER);
  await build("one");
  await build("one");
  assert.deepEqual(fake.log, ["exec one", "publish lower", "exec up", "publish upper"]);
  await build("eins");
  assert.deepEqual(fake.snapshotsByTag.get("upper")?.history, ["eins", "up"]);
  const round = lower("one").replace("snapshot: base", "recipe: upper");
  await assert.rejects(recipes.build({ recipe: "upper" }, tarOf({ "upper/recipe.yaml": upper, "lower/recipe.yaml": round }), CALLER), {
    code: "RECIPE_INVALID",
    message: /^upper\/recipe\.yaml:3:10: image\.recipe: leads back to this recipe/,
  });
});

describe("refusals before anything is built", () => {
  const cases: [what: string, yaml: string, message: RegExp][] = [
    [
      "a file that was not uploaded",
      "image: { snapshot: base }\nfiles: [{ from: ./none, to: /x }]",
      /^recipe\.yaml:4:11: files\.0\.from: there is no file none/,
    ],
    [
      "a file of the daemon's host",
      "image: { snapshot: base }\nfiles: [{ from: /etc/passwd, to: /x }]",
      /files\.0\.from: must be a relative path/,
    ],
    [
      "a file above the upload",
      "image: { snapshot: base }\nfiles: [{ from: ../../etc/passwd, to: /x }]",
      /files\.0\.from: must be a relative path/,
    ],
    ["an archive that was not uploaded", "image: { tar: ./root.tar }", /image\.tar: there is no file root\.tar/],
    ["a package that is an option", "image: { packages: [--hook] }", /image\.packages\.0: must be a package name/],
    ["a machine without memory", "image: { packages: [] }\nmachine: { memory_mib: 1 }", /machine\.memory_mib: /],
    ["an invalid rule", 'image: { snapshot: base }\nnetwork: { allow: ["???"] }', /network\.allow\.0: /],
    [
      "a time-out beyond the range of timers",
      "image: { snapshot: base }\nsteps: [{ exec: [x], timeout_secs: 1000000000 }]",
      /timeout_secs: must be at most/,
    ],
    ["a missing recipe", "image: { recipe: no-such }", /image\.recipe: there is no recipe no-such/],
  ];
  for (const [what, yaml, message] of cases)
    it(what, async (t) => {
      const { fake, build } = await fixture(t);
      await assert.rejects(build(yaml), { code: "RECIPE_INVALID", message });
      assert.deepEqual([fake.log, fake.tags()], [[], ["base"]]);
    });
});

test("check lists the files of a recipe, and compares its name with its folder's", async (t) => {
  const { recipes } = await fixture(t);
  const source =
    "name: x\ndescription: D.\nvars: { rows: 3 }\nimage: { tar: ./root.tar }\nfiles: [{ from: ./a, to: /a }, { from: ../b, to: /b }]\n";
  assert.deepEqual(recipes.check({ source, folder: "x", set: { rows: "4" } }), {
    name: "x",
    tag: "x",
    description: "D.",
    variables: { rows: "4" },
    files: ["./a", "../b", "./root.tar"],
    base: null,
    registry_reference: null,
  });
  assert.throws(() => recipes.check({ source, folder: "y" }), {
    code: "RECIPE_INVALID",
    message: "y/recipe.yaml:1:1: name: must be the name of its folder, y",
    details: { problems: [{ file: "y/recipe.yaml", line: 1, column: 1, message: "name: must be the name of its folder, y" }] },
  });
});

test("the recipes that come with forkd are listed and valid, and an unknown one is not found", async (t) => {
  const { recipes } = await fixture(t);
  const tags = new Map((await recipes.list()).map(({ name, tag }) => [name, tag]));
  assert.deepEqual([tags.get("e2b-base"), tags.get("python-numpy")], ["base", "python-numpy"]);
  await assert.rejects(recipes.build({ recipe: "posgres-fixture" }, tarOf({}), CALLER), {
    code: "NOT_FOUND",
    hint: /Did you mean postgres-fixture\?/,
  });
});

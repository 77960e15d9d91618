// What forkd build and forkd recipes ask the daemon for, and what they say.

import assert from "node:assert/strict";
import { cp, mkdir, symlink, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { describe, it } from "node:test";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { forkd, temporaryFolder } from "./helpers.ts";
import type * as find from "../src/recipe/find.ts";

const ROOT = resolve(import.meta.dirname, "..", "..", "..");

async function recipeIn(folder: string, name: string, lines: string[]): Promise<string> {
  await mkdir(join(folder, name), { recursive: true });
  await writeFile(join(folder, name, "recipe.yaml"), [`name: ${name}`, "description: A test.", ...lines, ""].join("\n"));
  return join(folder, name);
}

describe("the image of a recipe", () => {
  const cases: [image: string, args: string[], body: (folder: string) => object][] = [
    [
      'image: { packages: [python3, "${more}"], run: ["useradd x"] }\nvars: { more: jq }',
      ["--set", "more=curl"],
      () => ({ name: "x", packages: ["python3", "curl"], run: ["useradd x"], force: false }),
    ],
    ["image: { packages: [] }", ["--no-cache"], () => ({ name: "x", packages: [], force: true })],
    ["image: { oci: example.org/a/b:1 }", [], () => ({ name: "x", reference: "example.org/a/b:1" })],
    ["image: { tar: ./root.tar }", [], (folder) => ({ name: "x", file: join(folder, "x", "root.tar") })],
  ];
  for (const [image, args, body] of cases)
    it(`is made from ${image.split("\n")[0]} ${args.join(" ")}`, async () => {
      await using folder = await temporaryFolder();
      await using daemon = await fakeDaemon({
        "GET /v1/snapshots": { json: [] },
        "POST /v1/images": problem(502, "REGISTRY_FAILED", "It does not answer."),
      });
      const path = await recipeIn(folder.path, "x", [image]);
      await writeFile(join(path, "root.tar"), "an archive");
      const { code, stdout, stderr } = await forkd(["build", path, ...args], daemon.env);
      assert.deepEqual([code, stdout], [1, ""]);
      assert.match(stderr, /It does not answer\.\n.*\[REGISTRY_FAILED\]/);
      assert.deepEqual(daemon.asked.find(({ method }) => method === "POST")?.body, body(folder.path));
    });
});

describe("forkd build", () => {
  it("says where a recipe is wrong, and asks the daemon for nothing", async () => {
    await using folder = await temporaryFolder();
    await using daemon = await fakeDaemon();
    const path = await recipeIn(folder.path, "x", ["image: { packages: [] }", "stepps: []"]);
    const { code, stderr } = await forkd(["build", path], daemon.env);
    assert.equal(code, 1);
    assert.match(stderr, /^forkd: \S*x\/recipe\.yaml:4:1: there is no field stepps\.\n.*\[RECIPE_INVALID\]\n$/);
    assert.deepEqual(daemon.lines(), []);
  });

  it("says where a file is named that is not there, or a name that is not the folder's", async () => {
    await using folder = await temporaryFolder();
    await using daemon = await fakeDaemon();
    const path = await recipeIn(folder.path, "x", ["image: { packages: [] }", "files: [{ from: ./none, to: /x }]"]);
    assert.match((await forkd(["build", path], daemon.env)).stderr, /recipe\.yaml:4:11: files\.0\.from: there is no \S+\/x\/none\./);
    await cp(path, join(folder.path, "y"), { recursive: true });
    assert.match((await forkd(["build", join(folder.path, "y")], daemon.env)).stderr, /:1:1: name: must be the name of its folder, y/);
  });

  it("says that there is no such recipe", async () => {
    const { code, stdout } = await forkd(["build", "no-such-recipe", "--json"]);
    const { code: why, hint } = JSON.parse(stdout) as { code: string; hint: string };
    assert.deepEqual([code, why, hint], [1, "NOT_FOUND", "List them with 'forkd recipes'."]);
  });
});

describe("forkd recipes", () => {
  it("lists those that come with forkd", async () => {
    const { code, stdout } = await forkd(["recipes", "--json"]);
    assert.equal(code, 0);
    const tags = new Map((JSON.parse(stdout) as { name: string; tag: string }[]).map(({ name, tag }) => [name, tag]));
    assert.equal(tags.get("python-numpy"), "python-numpy");
    assert.equal(tags.get("e2b-base"), "base");
    assert.match((await forkd(["recipes"])).stdout, /^e2b-base +base +E2B's template/m);
  });

  it("lists those of a folder, and says which cannot be used", async () => {
    await using folder = await temporaryFolder();
    await recipeIn(folder.path, "good", ["image: { packages: [] }"]);
    await recipeIn(folder.path, "bad", ["image: {}"]);
    const { code, stdout, stderr } = await forkd(["recipes", folder.path]);
    assert.equal(code, 1);
    assert.match(stdout, /^good +good +A test\.$/m);
    assert.match(stderr, /bad\/recipe\.yaml:3:1: image: must have exactly one of [^]*\[RECIPE_INVALID\]/);
    assert.equal((await forkd(["recipes", join(folder.path, "none")])).code, 1);
  });

  it("lists what there is where the package was installed without the repository", async () => {
    await using folder = await temporaryFolder();
    const program = join(folder.path, "src", "recipe");
    await cp(join(ROOT, "packages", "cli", "src"), join(folder.path, "src"), { recursive: true });
    await writeFile(join(folder.path, "package.json"), '{ "type": "module" }');
    await cp(join(ROOT, "recipes", "nodejs"), join(folder.path, "recipes", "nodejs"), { recursive: true });
    // its dependencies are wherever npm put them
    await symlink(join(ROOT, "node_modules"), join(folder.path, "node_modules"));
    const { recipeFiles } = (await import(join(program, "find.ts"))) as typeof find;
    assert.deepEqual(await recipeFiles(), [join(folder.path, "recipes", "nodejs", "recipe.yaml")]);
  });
});

// What forkd build and forkd recipes ask the daemon for, and what they say.

import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { forkd, temporaryFolder } from "./helpers.ts";
import * as samples from "./samples.ts";
import type { Answer } from "./fake-daemon.ts";

async function recipeIn(folder: string, name: string, lines: string[]): Promise<string> {
  await mkdir(join(folder, name), { recursive: true });
  await writeFile(join(folder, name, "recipe.yaml"), [`name: ${name}`, "description: A test.", ...lines, ""].join("\n"));
  return join(folder, name);
}

const BUILT = { tag: "x", unchanged: false, ms: 1500, steps: [], tests: [{ name: "a", ms: 1 }], snapshot: samples.snapshot("x") };
const CHECKED = { name: "x", tag: "x", description: "A test.", variables: {}, files: [], base: null, registry_reference: null };

/** Progress, then the result or an error, line by line */
function lines(...all: object[]): Answer {
  return (_asked, response) => {
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.end(all.map((line) => `${JSON.stringify(line)}\n`).join(""));
  };
}

describe("forkd build", () => {
  it("sends the recipe with its options, prints its steps and the result", async () => {
    await using folder = await temporaryFolder();
    await using daemon = await fakeDaemon({
      "POST /v1/recipes/check": { json: CHECKED },
      "POST /v1/recipes/build": lines(
        { progress: { step: "[1/2] one", cached: true } },
        { progress: { step: "[2/2] two" } },
        { progress: { step: "[2/2] two", ms: 1200 } },
        { result: BUILT, status: 200 },
      ),
    });
    const path = await recipeIn(folder.path, "x", ["image: { packages: [] }"]);
    const { code, stdout, stderr } = await forkd(["build", path, "--tag", "t", "--set", "rows=5", "--test", "--no-cache"], daemon.env);
    assert.deepEqual([code, stdout], [0, "Snapshot x: ready after 1.5 s. 1 test passed.\n"]);
    assert.equal(stderr, "[1/2] one: done before\n[2/2] two: 1.2 s\n");
    assert.deepEqual(daemon.lines().at(-1), "POST /v1/recipes/build?recipe=x&tag=t&set=rows%3D5&test=true&no_cache=true");
    assert.deepEqual((daemon.asked[0]?.body as { set?: object } | undefined)?.set, { rows: "5" });
    assert.equal((await forkd(["build", path, "-q"], daemon.env)).stdout, "x\n");
    assert.deepEqual(JSON.parse((await forkd(["build", path, "--json"], daemon.env)).stdout), BUILT);
  });

  it("sends the login for the registry of the recipe's image", async () => {
    await using folder = await temporaryFolder();
    await using daemon = await fakeDaemon({
      "POST /v1/recipes/check": { json: { ...CHECKED, registry_reference: "example.org/a/b:1" } },
      "POST /v1/recipes/build": { json: BUILT },
    });
    const path = await recipeIn(folder.path, "x", ["image: { oci: example.org/a/b:1 }"]);
    const env = { ...daemon.env, FORKD_REGISTRY_USER: "u", FORKD_REGISTRY_PASSWORD: "p" };
    assert.equal((await forkd(["build", path], env)).code, 0);
    const header = daemon.asked.at(-1)?.headers["x-registry-auth"];
    assert.deepEqual(JSON.parse(Buffer.from(String(header), "base64").toString()), { username: "u", password: "p" });
  });

  it("says where a recipe is wrong, by its path on this machine", async () => {
    await using folder = await temporaryFolder();
    await using daemon = await fakeDaemon({
      "POST /v1/recipes/check": problem(422, "RECIPE_INVALID", "x/recipe.yaml:4:1: there is no field stepps"),
    });
    const path = await recipeIn(folder.path, "x", ["image: { packages: [] }", "stepps: []"]);
    const { code, stderr } = await forkd(["build", path], daemon.env);
    assert.equal(code, 1);
    assert.match(stderr, /^forkd: \/\S*x\/recipe\.yaml:4:1: there is no field stepps\.\n.*\[RECIPE_INVALID\]\n$/);
    assert.deepEqual(daemon.lines(), ["POST /v1/recipes/check"]);
  });

  it("prints what a step printed before it failed", async () => {
    const error = {
      error: "Cannot build x: the step “a” failed: it ended with exit code 7.",
      code: "BUILD_FAILED",
      hint: "H.",
      request_id: "r",
    };
    await using daemon = await fakeDaemon({
      "GET /v1/recipes": { json: [CHECKED] },
      "POST /v1/recipes/build": lines({ progress: { step: "[1/1] a" } }, { error: { ...error, details: { output: "what went wrong\n" } } }),
    });
    const { code, stdout, stderr } = await forkd(["build", "x"], daemon.env);
    assert.deepEqual([code, stdout], [1, ""]);
    assert.match(stderr, /^what went wrong\nforkd: Cannot build x[^]*exit code 7\.\n.*\[BUILD_FAILED\]\n$/);
  });

  it("says that there is no such recipe", async () => {
    await using daemon = await fakeDaemon({
      "GET /v1/recipes": { json: [CHECKED] },
      "POST /v1/recipes/build": problem(404, "NOT_FOUND", "There is no recipe y.", "`GET /v1/recipes` lists what there is."),
    });
    const { code, stderr } = await forkd(["build", "y"], daemon.env);
    assert.equal(code, 1);
    assert.match(stderr, /There is no recipe y\.\n.*'forkd recipes' lists what there is/);
  });
});

describe("forkd recipes", () => {
  it("lists those that come with the daemon's forkd", async () => {
    await using daemon = await fakeDaemon({ "GET /v1/recipes": { json: [{ ...CHECKED, name: "e2b-base", tag: "base" }] } });
    assert.match((await forkd(["recipes"], daemon.env)).stdout, /^e2b-base +base +A test\.$/m);
    const [first] = JSON.parse((await forkd(["recipes", "--json"], daemon.env)).stdout) as { name: string; tag: string }[];
    assert.deepEqual([first?.name, first?.tag], ["e2b-base", "base"]);
  });

  it("lists those of a folder, and says which cannot be used", async () => {
    await using folder = await temporaryFolder();
    await using daemon = await fakeDaemon({
      "POST /v1/recipes/check": (asked, response) => {
        const isGood = (asked.body as { folder: string }).folder === "good";
        const body = isGood
          ? { ...CHECKED, name: "good", tag: "good" }
          : { error: "bad/recipe.yaml:3:1: image: is missing", code: "RECIPE_INVALID", hint: "", request_id: "" };
        response.writeHead(isGood ? 200 : 422, { "content-type": "application/json" }).end(JSON.stringify(body));
      },
    });
    await recipeIn(folder.path, "good", ["image: { packages: [] }"]);
    await recipeIn(folder.path, "bad", ["image: {}"]);
    const { code, stdout, stderr } = await forkd(["recipes", folder.path], daemon.env);
    assert.equal(code, 1);
    assert.match(stdout, /^good +good +A test\.$/m);
    assert.match(stderr, /^\/\S+\/bad\/recipe\.yaml:3:1: image: is missing[^]*\[RECIPE_INVALID\]/);
    assert.equal((await forkd(["recipes", join(folder.path, "none")], daemon.env)).code, 1);
  });
});

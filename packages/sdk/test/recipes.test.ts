// Builds of recipes: what of a folder is sent, and how errors name it.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { readTar } from "@forkd/runtime/archive/tar-read";
import { Controller } from "../src/index.ts";
import { archiveOf } from "../src/recipe.ts";
import { FakeDaemon } from "./helpers/fake-daemon.ts";
import type { Override } from "./helpers/fake-daemon.ts";

let root: string;

before(async () => {
  root = await mkdtemp(join(tmpdir(), "forkd-sdk-recipes-"));
  for (const folder of ["py/data/sub", "lower", "shared"]) await mkdir(join(root, folder), { recursive: true });
  await writeFile(join(root, "py", "recipe.yaml"), "name: py\n");
  await writeFile(join(root, "py", "secret"), "not named by the recipe");
  await writeFile(join(root, "py", "run.sh"), "#!/bin/sh\n", { mode: 0o755 });
  await writeFile(join(root, "py", "data", "sub", "ä".repeat(60)), "deep");
  await symlink("sub", join(root, "py", "data", "link"));
  await symlink("run.sh", join(root, "py", "named-link"));
  await writeFile(join(root, "shared", "b"), "");
  await writeFile(join(root, "lower", "recipe.yaml"), "name: lower\n");
});

after(async () => rm(root, { recursive: true }));

type Packed = Record<string, string>;

async function packed(bytes: Uint8Array): Promise<Packed> {
  const entries: Packed = {};
  for await (const { header, body } of readTar(Readable.from([Buffer.from(bytes)]), "sent")) {
    const name = Buffer.from(header.path, "latin1").toString();
    entries[name] = `${header.type} ${header.mode.toString(8)} ${header.linkname || (await text(body()))}`;
  }
  return entries;
}

/** Answers checks from a table, and keeps what builds send */
function recording(files: Record<string, { files?: string[]; base?: string }>, sent: Buffer[]): Override {
  return (seen, response) => {
    if (seen.route === "buildRecipe") sent.push(seen.body as Buffer);
    if (seen.route !== "checkRecipe") return false;
    const { folder = "py" } = seen.body as { folder?: string };
    const { files: named = [], base = null } = files[folder] ?? {};
    const body = { name: folder, tag: folder, description: "", variables: {}, files: named, base, registry_reference: "r.example/x:1" };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
    return true;
  };
}

test("of a folder, the recipe, the files that it names and the recipe beside it are sent, and nothing else", async () => {
  const sent: Buffer[] = [];
  const files = ["./run.sh", "./data", "./named-link", "../shared/b", "./none"];
  await using daemon = await FakeDaemon.start(recording({ py: { files, base: "lower" } }, sent));
  const controller = new Controller({ socket: daemon.socket });
  const references: string[] = [];
  await controller.buildRecipe(join(root, "py"), {
    registry: async (reference) => {
      references.push(reference);
      return { username: "u", password: "pä" };
    },
  });
  assert.deepEqual(await packed(sent[0] ?? Buffer.alloc(0)), {
    "py/recipe.yaml": "file 644 name: py\n",
    "py/run.sh": "file 755 #!/bin/sh\n",
    "py/data/": "dir 755 ",
    "py/data/link": "symlink 777 sub",
    "py/data/sub/": "dir 755 ",
    [`py/data/sub/${"ä".repeat(60)}`]: "file 644 deep",
    "py/named-link": "file 755 #!/bin/sh\n",
    "shared/b": "file 644 ",
    "lower/recipe.yaml": "file 644 name: lower\n",
  });
  assert.deepEqual(references, ["r.example/x:1"]);
  const login = Buffer.from(String(daemon.last.headers["x-registry-auth"]), "base64").toString();
  assert.deepEqual(JSON.parse(login), { username: "u", password: "pä" });
  assert.deepEqual(daemon.last.query, { recipe: "py" });
});

test("a recipe without a folder is sent with the files that are given", async () => {
  const sent: Buffer[] = [];
  await using daemon = await FakeDaemon.start(recording({}, sent));
  await new Controller({ url: daemon.url }).buildRecipe({ source: "name: py\n", files: { a: "A", "sub/b": new Uint8Array([66]) } });
  assert.deepEqual(await packed(sent[0] ?? Buffer.alloc(0)), {
    "recipe.yaml": "file 644 name: py\n",
    a: "file 644 A",
    "sub/b": "file 644 B",
  });
  assert.deepEqual(daemon.last.query, {});
});

test("a problem is reported with the path on this machine", async () => {
  const answer =
    (route: string): Override =>
    (seen, response) => {
      if (seen.route !== route) return recording({ py: {} }, [])(seen, response, 0);
      const error = "py/recipe.yaml:4:1: there is no field stepps\npy/recipe.yaml:5:1: there is no field x";
      response
        .writeHead(422, { "content-type": "application/json" })
        .end(JSON.stringify({ error, code: "RECIPE_INVALID", hint: "", request_id: "" }));
      return true;
    };
  const file = join(root, "py", "recipe.yaml");
  for (const route of ["checkRecipe", "buildRecipe"]) {
    await using daemon = await FakeDaemon.start(answer(route));
    await assert.rejects(new Controller({ socket: daemon.socket }).buildRecipe(join(root, "py")), {
      code: "RECIPE_INVALID",
      message: `${file}:4:1: there is no field stepps\n${file}:5:1: there is no field x`,
    });
  }
});

test("a path without a recipe is not found, and a name is left to the daemon", async () => {
  await using daemon = await FakeDaemon.start();
  const controller = new Controller({ socket: daemon.socket });
  await assert.rejects(controller.buildRecipe("./no-such-folder"), { code: "NOT_FOUND" });
  await controller.buildRecipe("no-such-recipe");
  assert.deepEqual(daemon.last.query, { recipe: "no-such-recipe" });
});

test("a file that changes while it is sent is an error", async () => {
  const content = async function* (): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(3);
  };
  await assert.rejects(Array.fromAsync(archiveOf([{ path: "a", mode: 0o644, size: 4, content }])), /it changed while it was read/);
});

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { forkd, temporaryFolder } from "./helpers.ts";

test("image ls of an empty store is an empty list and makes nothing", async () => {
  await using folder = await temporaryFolder();
  const env = { FORKD_HOME: join(folder.path, "home") };
  assert.deepEqual(JSON.parse((await forkd(["image", "ls", "--json"], env)).stdout), []);
  const text = await forkd(["image", "ls"], env);
  assert.equal(text.code, 0);
  assert.match(text.stdout, /^There are no images\./);
  assert.deepEqual(await readdir(folder.path), []);
});

const BAD_NAMES = ["../evil", "a/b", "", ".hidden", "a b", "x".repeat(65), "-n"];

for (const name of BAD_NAMES) {
  test(`the image name ${JSON.stringify(name.slice(0, 20))} is refused and nothing is made`, async () => {
    await using folder = await temporaryFolder();
    const env = { FORKD_HOME: join(folder.path, "home"), FORKD_RUN: join(folder.path, "run") };
    const attempts = [
      ["image", "build", "--packages", "hello", "--", name],
      ["image", "import", "/nonexistent.tar", `--name=${name}`],
      ["image", "pull", "localhost:1/x", `--name=${name}`],
    ];
    for (const args of attempts) {
      const { code, stderr } = await forkd(args, env);
      assert.equal(code, 1, args.join(" "));
      assert.match(stderr, /\[BAD_NAME\]/, args.join(" "));
    }
    assert.deepEqual(await readdir(folder.path), []);
  });
}

test("what does not exist is NOT_FOUND, as text and as JSON", async () => {
  await using folder = await temporaryFolder();
  const env = { FORKD_HOME: join(folder.path, "home") };
  for (const verb of ["inspect", "rm"]) {
    const text = await forkd(["image", verb, "nothing"], env);
    assert.equal(text.code, 1);
    assert.match(text.stderr, /^forkd: There is no image "nothing"\.\n.*\[NOT_FOUND\]\n$/);
    const json = await forkd(["image", verb, "nothing", "--json"], env);
    assert.equal(json.code, 1);
    assert.equal(json.stderr, "");
    const problem = JSON.parse(json.stdout) as { error: string; code: string; hint: string };
    assert.equal(problem.code, "NOT_FOUND");
    assert.notEqual(problem.hint, "");
  }
});

test("a store that others can write is refused", async () => {
  await using folder = await temporaryFolder();
  const home = join(folder.path, "home");
  const { chmod, mkdir } = await import("node:fs/promises");
  await mkdir(home);
  await chmod(home, 0o777);
  const { code, stderr } = await forkd(["image", "import", "/nonexistent.tar", "--name", "x"], {
    FORKD_HOME: home,
    FORKD_RUN: join(folder.path, "run"),
  });
  assert.equal(code, 1);
  assert.match(stderr, /\[HOME_UNSAFE\]/);
});

// Templates built by E2B's own package: files, commands, environment, a server that is warm in every sandbox.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BuildError, Sandbox, Template } from "e2b";
import { E2bDaemon, forgetClocks } from "../helpers/e2b.ts";
import { PYTHON_IMAGE } from "../helpers/vm.ts";

let e2b: E2bDaemon;
let context: string;

before(async () => {
  forgetClocks();
  e2b = await E2bDaemon.start();
  Object.assign(process.env, e2b.env);
  context = await mkdtemp(join(tmpdir(), "forkd-test-context-"));
  await mkdir(join(context, "app", "inner"), { recursive: true });
  await writeFile(join(context, "app", "main.py"), "print('main')\n");
  await writeFile(join(context, "app", "inner", "data"), "data");
  await writeFile(join(context, "one.txt"), "one");
  await writeFile(join(context, "two.txt"), "two");
});

after(async () => {
  for (const name of Object.keys(e2b.env)) delete process.env[name];
  await rm(context, { recursive: true, force: true });
  await e2b[Symbol.asyncDispose]();
});

test("steps are done in order, and what they made is in every sandbox", async () => {
  const template = Template({ fileContextPath: context })
    .fromTemplate("base")
    .setEnvs({ COLOUR: "blue", SIZE: "two words" })
    .copy("app", "/srv/app")
    .copy("one.txt", "/srv/", { mode: 0o600, user: "root" })
    .copy("*.txt", "texts/")
    .runCmd("echo $COLOUR $(id -un) $PWD > made")
    .runCmd("id -un > /root/made", { user: "root" })
    .setWorkdir("/srv/app")
    .runCmd("python3 main.py > /tmp/printed")
    .setStartCmd("python3 -m http.server 8000", "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'");
  const lines: string[] = [];
  const built = await Template.build(template, "shop", { tags: ["v1", "default"], onBuildLogs: ({ message }) => void lines.push(message) });
  assert.deepEqual([built.name, built.tags], ["shop", ["v1", "default"]]);
  assert.ok(lines.some((line) => line.includes("COPY app")));
  assert.equal(await Template.exists("shop:v1"), true);

  const sandbox = await Sandbox.create("shop", { timeoutMs: 60_000 });
  const run = async (command: string): Promise<string> => (await sandbox.commands.run(command)).stdout.trim();
  assert.equal(await run("pwd; echo $COLOUR, $SIZE"), "/srv/app\nblue, two words");
  assert.equal(await run("cat ~/made /tmp/printed"), "blue user /home/user\nmain");
  assert.equal(await run("cat inner/data; stat -c '%U %a' main.py"), "datauser 644");
  assert.equal(await run("ls ~/texts"), "one.txt\ntwo.txt");
  assert.equal((await sandbox.commands.run("stat -c '%U %a' /srv/one.txt; cat /root/made", { user: "root" })).stdout, "root 600\nroot\n");
  assert.match(await run("python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8000/main.py\").status)'"), /200/);
  await sandbox.kill();
});

test("an image is booted with the size that was asked for", async () => {
  const template = Template().fromImage(PYTHON_IMAGE).setUser("root").runCmd("echo built > /built");
  await Template.build(template, "from-image", { memoryMB: 320 });
  const sandbox = await Sandbox.create("from-image", { timeoutMs: 60_000 });
  assert.equal((await sandbox.commands.run("cat /built; id -un; id -un user")).stdout, "built\nroot\nuser\n");
  assert.equal((await sandbox.getInfo()).memoryMB, 320);
  await sandbox.kill();
});

test("a step that fails ends the build, says why, and leaves nothing", async () => {
  const template = Template().fromTemplate("base").runCmd("echo so far").runCmd("echo bad luck; exit 7");
  const lines: string[] = [];
  const building = Template.build(template, "broken", { onBuildLogs: ({ message }) => void lines.push(message) });
  await assert.rejects(building, (error) => error instanceof BuildError && /exit status 7/.test(error.message));
  assert.ok(lines.includes("so far") && lines.includes("bad luck"));
  assert.equal(await Template.exists("broken"), false);
  const left = await e2b.daemon.controller.listSandboxes();
  assert.deepEqual(
    left.filter(({ snapshot_tag: tag }) => tag === "base"),
    [],
  );
});

test("files are sent only to an address that was given out", async () => {
  const refused = await fetch(`${e2b.url}/templates/shop/files/abc?by=e2b&token=00`, { method: "PUT", body: "x" });
  assert.equal(refused.status, 401);
});

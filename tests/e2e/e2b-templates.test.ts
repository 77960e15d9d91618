// Templates built with E2B's own package: files, commands, environment, and a server that is warm in every sandbox.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BuildError, Sandbox, Template } from "e2b";
import { E2bDaemon, forgetClocks, PATIENT } from "../helpers/e2b.ts";
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

test("steps run in order, and their results are in every sandbox", async () => {
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

  const sandbox = await Sandbox.create("shop", PATIENT);
  const run = async (command: string): Promise<string> => (await sandbox.commands.run(command)).stdout.trim();
  assert.equal(await run("pwd; echo $COLOUR, $SIZE"), "/srv/app\nblue, two words");
  assert.equal(await run("cat ~/made /tmp/printed"), "blue user /home/user\nmain");
  assert.equal(await run("cat inner/data; stat -c '%U %a' main.py"), "datauser 644");
  assert.equal(await run("ls ~/texts"), "one.txt\ntwo.txt");
  assert.equal((await sandbox.commands.run("stat -c '%U %a' /srv/one.txt; cat /root/made", { user: "root" })).stdout, "root 600\nroot\n");
  assert.match(await run("python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8000/main.py\").status)'"), /200/);
  await sandbox.kill();
});

test("only steps after a change are repeated, unless the cache is skipped", async () => {
  const template = (second: string): ReturnType<ReturnType<typeof Template>["fromTemplate"]> =>
    Template().fromTemplate("base").runCmd("date +%s%N > stamp").runCmd(`echo ${second} > second`);
  const build = async (second: string, opts: { skipCache?: boolean } = {}): Promise<{ files: string; cached: string[] }> => {
    const cached: string[] = [];
    const onBuildLogs = ({ message }: { message: string }): void => {
      if (message.startsWith("CACHED")) cached.push(message);
    };
    await Template.build(template(second), "layered", { onBuildLogs, ...opts });
    const sandbox = await Sandbox.create("layered", PATIENT);
    const { stdout } = await sandbox.commands.run("cat stamp second");
    await sandbox.kill();
    return { files: stdout, cached };
  };
  const first = await build("two");
  const second = await build("zwei");
  const [stamp] = first.files.split("\n");
  assert.equal(second.files, `${stamp}\nzwei\n`);
  assert.equal(second.cached.filter((line) => line.includes("RUN date")).length, 1);
  assert.notEqual((await build("zwei", { skipCache: true })).files.split("\n")[0], stamp);
  const layers = await e2b.daemon.controller.listSnapshots({ metadata: { "forkd.build": "layered" } });
  assert.equal(layers.length, 3, "one layer for the user and one for each step");
  const listed = await fetch(`${e2b.url}/templates`, { headers: { "x-api-key": e2b.env["E2B_API_KEY"] ?? "" } });
  assert.doesNotMatch(await listed.text(), /build-layered/, "layers are no templates");
});

test("an image is booted with the requested size", async () => {
  const template = Template().fromImage(PYTHON_IMAGE).setUser("root").runCmd("echo built > /built");
  await Template.build(template, "from-image", { memoryMB: 320 });
  const sandbox = await Sandbox.create("from-image", PATIENT);
  assert.equal((await sandbox.commands.run("cat /built; id -un; id -un user")).stdout, "built\nroot\nuser\n");
  assert.equal((await sandbox.getInfo()).memoryMB, 320);
  await sandbox.kill();
});

test("a failing step ends the build, reports the reason, and leaves nothing", async () => {
  const template = Template().fromTemplate("base").runCmd("echo so far").runCmd("echo bad luck; exit 7");
  const lines: string[] = [];
  const building = Template.build(template, "broken", { onBuildLogs: ({ message }) => void lines.push(message) });
  await assert.rejects(building, (error) => error instanceof BuildError && /exit status 7/.test(error.message));
  assert.ok(lines.includes("so far") && lines.includes("bad luck"));
  const unknown = Template.build(Template().fromTemplate("base").runCmd("whoami", { user: "root123" }), "broken");
  const words = "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'";
  await assert.rejects(unknown, (error) => error instanceof BuildError && error.message.includes(words));
  assert.equal(await Template.exists("broken"), false);
  const left = await e2b.daemon.controller.listSandboxes();
  assert.deepEqual(
    left.filter(({ snapshot_tag: tag }) => tag === "base"),
    [],
  );
});

test("files are accepted only at an issued address", async () => {
  const refused = await fetch(`${e2b.url}/templates/shop/files/abc?by=e2b&token=00`, { method: "PUT", body: "x" });
  assert.equal(refused.status, 401);
});

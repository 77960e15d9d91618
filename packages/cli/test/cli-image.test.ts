import assert from "node:assert/strict";
import { chmod, mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { until } from "../../../tests/helpers/until.ts";
import { forkd, startForkd, temporaryFolder } from "./helpers.ts";
import * as samples from "./samples.ts";

import type { Answer } from "./fake-daemon.ts";

const PY = samples.image("py");
const STORED = "Stored: py (0123456789ab, 1.5 MiB)\n";

type Case = { args: string[]; env?: Record<string, string>; body: unknown };

const CREATIONS: Case[] = [
  { args: ["image", "build", "py"], body: { name: "py", packages: [] } },
  {
    args: ["image", "build", "py", "--packages", "python3, nodejs", "--packages", "jq=1.7:2~a", "--run", "a,b", "--run", "c", "--force"],
    body: { name: "py", packages: ["python3", "nodejs", "jq=1.7:2~a"], run: ["a,b", "c"], force: true },
  },
  {
    args: ["image", "build", "py", "--copy", "./a:b:/srv/", "--copy", "/etc/../x:/y", "--suite", "trixie", "--mirror", "http://m/"],
    body: {
      name: "py",
      packages: [],
      copy: [
        { from: join(process.cwd(), "a:b"), to: "/srv/" },
        { from: "/x", to: "/y" },
      ],
      suite: "trixie",
      mirror: "http://m/",
    },
  },
  {
    args: ["image", "import", "some/py.tar", "--name", "py", "--max-bytes", "2G"],
    body: { name: "py", file: join(process.cwd(), "some/py.tar"), max_bytes: 2 * 1024 ** 3 },
  },
  {
    args: ["image", "pull", "example.org/owner/py", "--insecure-http", "--max-bytes", "1k"],
    body: { name: "py", reference: "example.org/owner/py", insecure_http: true, max_bytes: 1024 },
  },
  {
    args: ["parent", "build", "owner/py:1", "--name", "py"],
    env: { FORKD_REGISTRY_USER: "me", FORKD_REGISTRY_PASSWORD: "hunter2" },
    body: { name: "py", reference: "owner/py:1", username: "me", password: "hunter2" },
  },
];

for (const { args, env, body } of CREATIONS) {
  test(`forkd ${args.join(" ")}`, async () => {
    await using daemon = await fakeDaemon({ "POST /v1/images": { status: 201, json: { ...PY, reused: false } } });
    const text = await forkd(args, { ...daemon.env, ...env });
    assert.deepEqual([text.code, text.stdout, text.stderr], [0, STORED, ""]);
    assert.deepEqual(daemon.asked[0]?.body, body);
    assert.equal(daemon.asked[0]?.headers["idempotency-key"], undefined, "with a key, the work would continue after Ctrl-C");
    const json = await forkd([...args, "--json"], { ...daemon.env, ...env });
    assert.deepEqual(JSON.parse(json.stdout), { ...PY, reused: false });
  });
}

test("an unchanged build is reported as unchanged", async () => {
  await using daemon = await fakeDaemon({ "POST /v1/images": { status: 201, json: { ...PY, reused: true } } });
  const { stdout } = await forkd(["image", "build", "py", "--packages", "python3"], daemon.env);
  assert.equal(stdout, STORED.replace("Stored", "Unchanged"));
});

test("progress of an image is shown, without the password of its registry", async () => {
  const shown = Promise.withResolvers<void>();
  const failing: Answer = (_asked, response) => {
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.write(`${JSON.stringify({ progress: { step: "Downloading", done: 1024, total: 4096, unit: "bytes" } })}\n`);
    const error = { error: "The registry answered 500.", code: "REGISTRY_FAILED", hint: "Try again.", request_id: "r" };
    void shown.promise.then(() => response.end(`${JSON.stringify({ error })}\n`));
  };
  await using daemon = await fakeDaemon({ "POST /v1/images": failing });
  const login = { FORKD_REGISTRY_USER: "me", FORKD_REGISTRY_PASSWORD: "hunter2" };
  const { output, closed } = startForkd(["image", "pull", "owner/py"], { ...daemon.env, ...login });
  await until(() => output() !== "");
  shown.resolve();
  assert.equal((await closed)[0], 1);
  assert.match(output(), /^(Downloading 25% of 4\.0 KiB \(\d+ s\)\n)+forkd: The registry answered 500\.\n.*\[REGISTRY_FAILED\]\n$/);
  assert.doesNotMatch(output(), /hunter2/);
});

test("Ctrl-C during the build of an image ends the request, with 130", async () => {
  const gone = Promise.withResolvers<void>();
  await using daemon = await fakeDaemon({ "POST /v1/images": (_asked, response) => void response.once("close", gone.resolve) });
  const { child, closed } = startForkd(["image", "build", "py", "--packages", "python3"], daemon.env);
  await until(() => daemon.asked.length > 0);
  child.kill("SIGINT");
  assert.deepEqual(await closed, [130, null]);
  await gone.promise;
});

test("an error of the daemon is the command's error", async () => {
  await using daemon = await fakeDaemon({ "POST /v1/images": problem(403, "FORBIDDEN", "Cannot use file: it is not yours.") });
  const { code, stderr } = await forkd(["image", "import", "x.tar", "--name", "x"], daemon.env);
  assert.equal(code, 1);
  assert.match(stderr, /^forkd: Cannot use file: it is not yours\.\n.*\[FORBIDDEN\]\n$/);
});

test("image ls prints a table or JSON", async () => {
  const images = [
    PY,
    samples.image("pulled", { source: { kind: "oci", reference: "docker.io/library/x:1", digest: "sha256:00" } }),
    samples.image("mine", { names: [], source: { kind: "import", file: "mine.tar", format: "rootfs" } }),
  ];
  await using daemon = await fakeDaemon({ "GET /v1/images": { json: images } });
  const short = (await forkd(["image", "ls"], daemon.env)).stdout;
  assert.deepEqual(
    short.split("\n").map((line) => line.split(/ {2,}/)),
    [
      ["NAME", "SIZE", "CREATED", "SOURCE"],
      ["py", "1.5 MiB", "2026-01-02 03:04", "debian trixie: python3, python3-numpy"],
      ["pulled", "1.5 MiB", "2026-01-02 03:04", "docker.io/library/x:1"],
      [""],
    ],
  );
  const { stdout } = await forkd(["image", "ls", "-a"], daemon.env);
  assert.deepEqual(
    stdout.split("\n").map((line) => line.split(/ {2,}/)),
    [
      ["NAME", "ID", "SIZE", "CREATED", "SOURCE"],
      ["py", "0123456789ab", "1.5 MiB", "2026-01-02 03:04", "debian trixie: python3, python3-numpy"],
      ["pulled", "0123456789ab", "1.5 MiB", "2026-01-02 03:04", "docker.io/library/x:1"],
      ["-", "0123456789ab", "1.5 MiB", "2026-01-02 03:04", "mine.tar"],
      [""],
    ],
  );
  assert.deepEqual(JSON.parse((await forkd(["image", "ls", "--json"], daemon.env)).stdout), images);
  daemon.answers["GET /v1/images"] = { json: [] };
  assert.match((await forkd(["image", "ls"], daemon.env)).stdout, /^There are no images\./);
});

test("image inspect prints a list of facts or JSON", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/images/py": { json: PY } });
  const { stdout } = await forkd(["image", "inspect", "py"], daemon.env);
  assert.match(stdout, /^id +sha256:0123456789abcdef\nnames +py\n/);
  assert.match(stdout, /^env +"A=1"$/m);
  assert.deepEqual(JSON.parse((await forkd(["image", "inspect", "py", "--json"], daemon.env)).stdout), PY);
});

test("a missing image is NOT_FOUND, as text and as JSON", async () => {
  const missing = problem(404, "NOT_FOUND", 'There is no image "nothing".');
  await using daemon = await fakeDaemon({ "GET /v1/images/nothing": missing, "DELETE /v1/images/nothing": missing });
  for (const verb of ["inspect", "rm"]) {
    const text = await forkd(["image", verb, "nothing"], daemon.env);
    assert.equal(text.code, 1);
    assert.match(text.stderr, /^forkd: There is no image "nothing"\.\n.*\[NOT_FOUND\]\n$/);
    const json = await forkd(["image", verb, "nothing", "--json"], daemon.env);
    assert.deepEqual([json.code, json.stderr], [1, ""]);
    const [found] = [JSON.parse(json.stdout) as unknown].flat();
    assert.partialDeepStrictEqual(found, { code: "NOT_FOUND", hint: "Do something." });
  }
});

test("image rm tries every name", async () => {
  const inUse = problem(409, "IN_USE", "Cannot remove image b: snapshots still need its data.");
  await using daemon = await fakeDaemon({ "DELETE /v1/images/a": {}, "DELETE /v1/images/b": inUse, "DELETE /v1/images/c": {} });
  const { code, stdout, stderr } = await forkd(["image", "rm", "a", "b", "c"], daemon.env);
  assert.deepEqual([code, stdout], [1, "Removed a.\nRemoved c.\n"]);
  assert.match(stderr, /\[IN_USE\]/);
});

test("an image verb for a remote daemon does not start a local one", async () => {
  await using daemon = await fakeDaemon({ "DELETE /v1/images/foo": {} });
  await using folder = await temporaryFolder();
  const env = { FORKD_HOME: join(folder.path, "home"), FORKD_RUN: join(folder.path, "run"), FORKD_NO_AUTOSTART: "" };
  const url = `unix://${join(daemon.folder, "forkd.sock")}`;
  const { code, stdout } = await forkd(["--daemon-url", url, "image", "rm", "foo"], env);
  assert.deepEqual([code, stdout], [0, "Removed foo.\n"]);
  assert.deepEqual(daemon.lines(), ["DELETE /v1/images/foo"]);
  assert.deepEqual(await readdir(folder.path), []);
});

test("image verbs start a daemon when none runs, and create nothing with --no-autostart", async () => {
  await using folder = await temporaryFolder();
  const home = join(folder.path, "home");
  const env = { FORKD_HOME: home, FORKD_RUN: join(folder.path, "run") };
  const refused = await forkd(["image", "ls"], env);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /\[DAEMON_UNREACHABLE\]/);
  assert.deepEqual(await readdir(folder.path), []);

  // a daemon that cannot start reports the reason, and leaves no process running
  await mkdir(home);
  await chmod(home, 0o777);
  const started = await forkd(["image", "import", "/nonexistent.tar", "--name", "x"], { ...env, FORKD_NO_AUTOSTART: "" });
  assert.equal(started.code, 1);
  assert.match(started.stderr, /\[HOME_UNSAFE\]/);
});

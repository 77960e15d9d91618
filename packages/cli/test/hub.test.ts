import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fakeDaemon } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";
import * as samples from "./samples.ts";

const SUM = "ab".repeat(32);
const LOGIN = { FORKD_REGISTRY_USER: "me", FORKD_REGISTRY_PASSWORD: "hunter2" };
/** A folder without logins */
const NO_DOCKER = { DOCKER_CONFIG: "/nowhere" };

function pushed(to: string, sent: number): object {
  const digest = to.startsWith("oci:") ? `sha256:${SUM}` : null;
  return { to, snapshot: "sn-1", digest, sha256: SUM, manifest_sha256: SUM, bytes: 4096, sent_bytes: sent };
}

const UNPACKED = { snapshot: samples.snapshot("py"), added: ["sn-0", "sn-1"], replaced: null, signed_by: null, warnings: [] };

test("push prints the address and the bytes sent, and the login is only in the request", async () => {
  const to = "oci://r.example/team/py:v1";
  await using daemon = await fakeDaemon({ "POST /v1/snapshots/py/push": { status: 201, json: pushed(to, 1024) } });
  const { code, stdout, stderr } = await forkd(["push", "py", to, "--sign", "k", "--level", "9"], { ...daemon.env, ...LOGIN });
  assert.deepEqual([code, stderr], [0, ""]);
  assert.equal(stdout, `Snapshot py is at ${to}: 4.0 KiB, of which 1.0 KiB were sent.\nsha256:${SUM}\n`);
  assert.deepEqual(daemon.asked[0]?.body, { to, level: 9, sign: "k", username: "me", password: "hunter2" });
  assert.equal(daemon.asked[0]?.headers["idempotency-key"], undefined, "with a key, the work would continue after Ctrl-C");
});

test("a signed address is read from standard input, with its query", async () => {
  await using daemon = await fakeDaemon({
    "POST /v1/snapshots/py/push": { status: 201, json: pushed("https://s.example/x", 4096) },
    "POST /v1/snapshots/pull": { status: 201, json: UNPACKED },
  });
  const address = "https://s.example/x?sig=s3cret";
  const env = { ...daemon.env, ...NO_DOCKER };
  const push = await forkd(["push", "py", "-"], env, `${address}\n`);
  assert.equal(push.stdout, `Snapshot py is at https://s.example/x: 4.0 KiB.\nsha256:${SUM}\n`);
  const pull = await forkd(["pull", "-", "--force", "--insecure-http"], env, address);
  assert.equal(pull.stdout, "Snapshot py: 256 MiB, with 1 that it builds on.\n");
  assert.deepEqual(
    daemon.asked.map(({ body }) => body),
    [{ to: address }, { from: address, force: true, insecure_http: true }],
  );
  assert.doesNotMatch(push.stdout + push.stderr + pull.stdout + pull.stderr, /s3cret/);
});

test("a name is looked up in the index of the option or the environment, with only the login of its own host", async () => {
  const none = { sha256: SUM, manifest_sha256: null, key: null, size_bytes: null, memory_mib: null, base_image: null, created_at: null };
  const versions = [{ version: "v1", url: "oci://r.example/acme/py:1", ...none }];
  const packages = [{ name: "acme/py", description: null, latest: null, versions }];
  await using daemon = await fakeDaemon({
    "GET /v1/hub": { json: { hub: "https://h.example/r.json", packages } },
    "POST /v1/snapshots/pull": { status: 201, json: UNPACKED },
  });
  const auth = Buffer.from("me:docker").toString("base64");
  await writeFile(join(daemon.folder, "config.json"), JSON.stringify({ auths: { "r.example": { auth } } }));
  const env = { ...daemon.env, ...LOGIN, DOCKER_CONFIG: daemon.folder, FORKD_HUB_URL: "https://h.example/r.json" };
  await forkd(["pull", "acme/py@v1", "--tag", "py", "-q"], env);
  await forkd(["pull", "acme/py", "--hub", "https://other.example/r.json"], env);
  assert.deepEqual(
    daemon.asked.flatMap(({ method, body }) => (method === "POST" ? [body] : [])),
    [
      {
        from: "acme/py@v1",
        tag: "py",
        hub: "https://h.example/r.json",
        username: "me",
        password: "docker",
        login_host: "r.example",
      },
      { from: "acme/py", hub: "https://other.example/r.json" },
    ],
  );
});

test("push to a file packs the snapshot, with no other request", async () => {
  const info = {
    tag: "py",
    id: "sn-1",
    manifest_digest: `sha256:${SUM}`,
    level: 3,
    signed_by: [],
    isolation: "emulated",
    cpu: "Nehalem-v1",
    cpu_vendor: null,
    snapshots: ["sn-1"],
    bytes: 4,
    content_bytes: 9,
  };
  await using daemon = await fakeDaemon({
    "POST /v1/snapshots/py/pack": { status: 201, json: { ...info, blobs: [] } },
    "GET /v1/snapshots/py/pack": (_asked, response) => void response.end("pack"),
  });
  const file = join(daemon.folder, "py.forkd");
  for (const [verb, ...rest] of [
    ["push", "py", file],
    ["push", "py", `file://${file}`],
    ["pack", "py", "-o", file],
  ] as const) {
    const { code, stdout, stderr } = await forkd([verb, ...rest, "--level", "9"], daemon.env);
    assert.deepEqual([code, stdout, stderr], [0, `${file}: 4 B, 9 B when unpacked. It runs emulated, on any x86-64 machine.\n`, ""]);
    assert.equal(await readFile(file, "utf8"), "pack");
    assert.deepEqual(daemon.asked.at(-2)?.body, { level: 9 });
    assert.equal(daemon.asked.at(-1)?.path, "/v1/snapshots/py/pack?level=9");
  }
});

test("a file is unpacked, in every form of its name", async () => {
  await using daemon = await fakeDaemon({ "POST /v1/packs": { status: 201, json: UNPACKED } });
  const file = join(daemon.folder, "py.forkd");
  await writeFile(file, "pack");
  for (const from of [file, `file://${file}`]) assert.equal((await forkd(["pull", from, "--tag", "py"], daemon.env)).code, 0);
  assert.deepEqual(daemon.lines(), ["POST /v1/packs?tag=py", "POST /v1/packs?tag=py"]);
  assert.equal(daemon.asked[1]?.bytes.toString(), "pack");
  const nowhere = await forkd(["pull", "ftp://h.example/py"], daemon.env);
  assert.equal(nowhere.code, 2);
});

test("hub ls prints a table or JSON", async () => {
  const version = { sha256: SUM, manifest_sha256: null, key: null, size_bytes: 2048, memory_mib: null, base_image: null, created_at: null };
  const listing = {
    hub: "https://h.example/r.json",
    packages: [
      {
        name: "acme/py",
        description: "warm",
        latest: "v2",
        versions: [
          { version: "v2", url: "https://h.example/2", ...version, key: "0f" },
          { version: "v1", url: "https://h.example/1", ...version, sha256: null, size_bytes: null },
        ],
      },
    ],
  };
  await using daemon = await fakeDaemon({ "GET /v1/hub": { json: listing } });
  const { stdout } = await forkd(["hub", "ls", "--hub", "https://h.example/r.json"], daemon.env);
  assert.match(stdout, /^acme\/py +v2 \(latest\) +2\.0 KiB +sum, key +warm$/m);
  assert.match(stdout, /^acme\/py +v1 +- +nothing +warm$/m);
  assert.deepEqual(JSON.parse((await forkd(["hub", "ls", "--json"], daemon.env)).stdout), listing);
  assert.deepEqual(daemon.lines(), ["GET /v1/hub?hub=https%3A%2F%2Fh.example%2Fr.json", "GET /v1/hub"]);
});

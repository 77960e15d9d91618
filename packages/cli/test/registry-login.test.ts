import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { registryLogin, registryOf } from "../src/options/registry-login.ts";

async function dockerEnv(t: TestContext, config: unknown): Promise<NodeJS.ProcessEnv> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-test-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  await writeFile(join(dir, "config.json"), typeof config === "string" ? config : JSON.stringify(config));
  return { DOCKER_CONFIG: dir, PATH: `${dir}/bin:${process.env["PATH"]}` };
}

const encoded = (login: string): { auth: string } => ({ auth: Buffer.from(login).toString("base64") });

test("the environment takes precedence over Docker's login for this host", async (t) => {
  const env = await dockerEnv(t, { auths: { "r.example:5000": encoded("me:pa:ss"), "https://index.docker.io/v1/": encoded("hub:x") } });
  assert.deepEqual(await registryLogin("r.example:5000", env), { username: "me", password: "pa:ss" });
  assert.deepEqual(await registryLogin(registryOf("python:3.13"), env), { username: "hub", password: "x" });
  assert.deepEqual(await registryLogin("r.example", env), {});
  const given = { ...env, FORKD_REGISTRY_USER: "you", FORKD_REGISTRY_PASSWORD: "there" };
  assert.deepEqual(await registryLogin("r.example:5000", given), { username: "you", password: "there" });
});

test("a credential helper is asked on its standard input", async (t) => {
  const env = await dockerEnv(t, { auths: { "r.example": {} }, credHelpers: { "r.example": "test", "none.example": "test" } });
  const bin = join(env["DOCKER_CONFIG"] ?? "", "bin");
  await mkdir(bin);
  const script = `#!/bin/sh\nread host\n[ "$1 $host" = "get r.example" ] || { echo "credentials not found"; exit 1; }\necho '{"Username":"me","Secret":"s3cret"}'\n`;
  await writeFile(join(bin, "docker-credential-test"), script);
  await chmod(join(bin, "docker-credential-test"), 0o755);
  assert.deepEqual(await registryLogin("r.example", env), { username: "me", password: "s3cret" });
  assert.deepEqual(await registryLogin("none.example", env), {});
});

test("missing settings are no login; unreadable settings and a missing helper are errors", async (t) => {
  assert.deepEqual(await registryLogin("r.example", { DOCKER_CONFIG: "/nowhere" }), {});
  await assert.rejects(registryLogin("r.example", await dockerEnv(t, "{")), { code: "BAD_CONFIG" });
  await assert.rejects(registryLogin("r.example", await dockerEnv(t, { credsStore: "not-installed" })), { code: "HOST_TOOL_MISSING" });
});

test("the registry of a reference", () => {
  const hub = "https://index.docker.io/v1/";
  const cases = {
    python: hub,
    "owner/py:1": hub,
    "docker.io/x/y": hub,
    "r.example/x": "r.example",
    "oci://127.0.0.1:5000/a/b:c": "127.0.0.1:5000",
  };
  for (const [reference, host] of Object.entries(cases)) assert.equal(registryOf(reference), host, reference);
});

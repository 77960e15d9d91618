import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, chmod, copyFile, mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { promisify } from "node:util";
import { patience } from "../../../../tests/helpers/patience.ts";
import { findProgram } from "@forkd/runtime/util/find-program";
import { ABORT_SECS, readRepo, root, settingsOf, unknownVariables } from "./files.ts";

const DOCKER_STOP_SECS = 10;
/** Created in the build stage, not in the repository */
const BUILT = ["node_modules", "dist", "guest-kernels"];

describe("container image", () => {
  it("copies only existing files", async () => {
    const sources = (await instructions("COPY")).flatMap((text) => text.split(/\s+/).slice(0, -1));
    const paths = sources.filter((word) => !word.startsWith("--")).map((path) => path.replace("/opt/forkd/", ""));
    assert.ok(paths.length > 10);
    for (const path of paths) if (!BUILT.includes(path)) await access(join(root, path));
  });

  it("has each part that the daemon needs", async () => {
    const final = (await instructions("COPY")).filter((text) => text.startsWith("--from=build"));
    for (const part of ["forkd", "node_modules", "packages", "bench", "dist", "guest/kernels"])
      assert.ok(
        final.some((text) => text.includes(`/opt/forkd/${part} `)),
        part,
      );
  });

  it("builds on pinned versions", async () => {
    const bases = await instructions("FROM");
    assert.equal(bases.length, 2);
    for (const base of bases) assert.match(base, /^debian:12-slim( AS \w+)?$/);
  });

  it("holds no secret", async () => {
    for (const text of [...(await instructions("ENV")), ...(await instructions("ARG"))])
      assert.doesNotMatch(text, /token|password|secret|_key/i);
    for (const text of await instructions("COPY")) assert.doesNotMatch(text, /\.(pem|key|env)\b/);
  });

  it("does not run as root", async () => {
    const users = await instructions("USER");
    assert.match(users.at(-1) ?? "", /^[1-9]\d*:[1-9]\d*$/);
  });

  it("starts by default, and listens only inside the container", async () => {
    const env = await environment();
    assert.deepEqual(await unknownVariables(Object.keys(env)), []);
    assert.equal((await settingsOf(env)).bind, "127.0.0.1:8889");
    assert.deepEqual(await instructions("CMD"), ['["forkd", "up", "--foreground"]']);
    assert.deepEqual(await instructions("EXPOSE"), ["8889"]);
  });

  it("stops properly within the time that docker gives", async () => {
    const { drainSecs } = await settingsOf(await environment());
    assert.ok(drainSecs + ABORT_SECS < DOCKER_STOP_SECS);
    assert.deepEqual(await instructions("STOPSIGNAL"), ["SIGTERM"]);
  });

  it("uses /healthz for its health", async () => {
    const [check = ""] = await instructions("HEALTHCHECK");
    assert.match(check, /'\/healthz'/);
    const argv = JSON.parse(check.slice(check.indexOf("CMD ") + 4)) as string[];
    // no daemon listens in this folder: the check must fail, not crash or hang
    const run = promisify(execFile)(process.execPath, argv.slice(1), { env: { FORKD_RUN: "/nonexistent" }, timeout: patience() });
    await assert.rejects(run, (error: Error & { code?: unknown }) => error.code === 1);
  });
});

describe("container entry point", () => {
  it("passes shellcheck", async (t) => {
    const shellcheck = await findProgram("shellcheck");
    if (!shellcheck) {
      t.skip("shellcheck is not installed");
      return;
    }
    await promisify(execFile)(shellcheck, [join(root, "deploy", "docker", "entrypoint.sh")]);
  });

  it("fills an empty store, restricts it to its user and becomes the command", async (t) => {
    const { entry, home } = await fakeImage(t.after.bind(t));
    await mkdir(home, { mode: 0o755 });
    await chmod(home, 0o775);
    assert.equal(await enter(entry, home), "hello\n");
    assert.deepEqual((await readdir(join(home, "guest-kernels"))).sort(), ["base-1", "current"]);
    assert.equal((await stat(home)).mode & 0o777, 0o700);
  });

  it("does not change a store with a guest kernel", async (t) => {
    const { entry, home } = await fakeImage(t.after.bind(t));
    await mkdir(join(home, "guest-kernels"), { recursive: true });
    await writeFile(join(home, "guest-kernels", "current"), "own");
    assert.equal(await enter(entry, home), "hello\n");
    assert.deepEqual(await readdir(join(home, "guest-kernels")), ["current"]);
  });
});

async function fakeImage(after: (cleanup: () => Promise<void>) => void): Promise<{ entry: string; home: string }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-entry-"));
  after(async () => rm(dir, { recursive: true, force: true }));
  const entry = join(dir, "entrypoint.sh");
  await copyFile(join(root, "deploy", "docker", "entrypoint.sh"), entry);
  await mkdir(join(dir, "guest-kernels", "base-1"), { recursive: true });
  await writeFile(join(dir, "guest-kernels", "base-1", "kernel"), "");
  await writeFile(join(dir, "guest-kernels", "current"), "1");
  return { entry, home: join(dir, "home") };
}

async function enter(entry: string, home: string): Promise<string> {
  const env = { PATH: process.env["PATH"], FORKD_HOME: home };
  return (await promisify(execFile)("/bin/sh", [entry, "echo", "hello"], { env })).stdout;
}

/** Arguments of each instruction of that name, with continued lines joined */
async function instructions(name: string): Promise<string[]> {
  const text = (await readRepo("deploy/docker/Dockerfile")).replace(/^#.*\n/gm, "").replace(/\\\n\s*/g, "");
  return text.split("\n").flatMap((line) => (line.startsWith(`${name} `) ? [line.slice(name.length + 1).trim()] : []));
}

async function environment(): Promise<Record<string, string>> {
  const pairs = (await instructions("ENV")).flatMap((text) => text.split(/\s+/));
  return Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
}

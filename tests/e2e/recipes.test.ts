// `forkd build` on real VMs: caching, failures, and every kind of check.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { until } from "../helpers/until.ts";

import type { CliResult } from "../helpers/daemon.ts";

const FORKD = resolve(import.meta.dirname, "..", "..", "forkd");

type Step = { title: string; cached: boolean };
type Report = { tag: string; unchanged: boolean; steps: Step[]; tests: { name: string }[]; snapshot: { id: string } };

describe("forkd build", () => {
  let daemon: TestDaemon;
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "forkd-test-recipes-"));
    daemon = await TestDaemon.start();
    // named after an image that every test has
    await recipe("python-numpy", [
      "tag: base",
      "image: { packages: [python3, python3-numpy] }",
      "machine: { memory_mib: 256 }",
      "kernels: [python]",
      'steps: [{ exec: "echo base > /srv/base" }]',
    ]);
    await build("./python-numpy");
  });

  after(async () => {
    await daemon[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  it("copies files, sets the environment, runs every kind of step, and forks have all of it", async () => {
    await mkdir(join(folder, "all", "data", "sub"), { recursive: true });
    await writeFile(join(folder, "all", "data", "sub", "b"), "in a folder");
    await writeFile(join(folder, "all", "one.sh"), "#!/bin/sh\necho one", { mode: 0o755 });
    await recipe("all", [
      "image: { snapshot: base }",
      "env: { WHO: everybody }",
      "workdir: /srv",
      "files:",
      '  - { from: ./data, to: /srv/data, owner: "nobody:nogroup" }',
      "  - { from: one.sh, to: /usr/local/bin/ }",
      "steps:",
      '  - exec: "one.sh > out; echo $WHO >> out"',
      '  - { exec: [sh, -c, "id -un > $OUT; pwd >> $OUT"], user: nobody, workdir: /tmp, env: { OUT: /tmp/place } }',
      "  - eval: state = [1, 2]",
      '  - file: { to: /etc/x/y.conf, content: "y\\n", mode: "0600", owner: nobody }',
      '  - { start: [sleep, "1000"], tag: sleeper }',
    ]);
    await build("all");
    await using sandbox = await Sandbox.create("all", { controller: daemon.controller });
    const { stdout } = await sandbox.exec("cat /srv/base /srv/out /tmp/place; stat -c '%U %a' /etc/x/y.conf /srv/data/sub/b; echo $WHO");
    assert.deepEqual(stdout.trim().split("\n"), ["base", "one", "everybody", "nobody", "/tmp", "nobody 600", "nobody 644", "everybody"]);
    assert.equal((await sandbox.eval("sum(state)")).value, 3);
    assert.equal((await sandbox.processes.get("sleeper")).state, "running");
  });

  it("repeats only the steps after a change, and keeps no unused layers", async () => {
    const lines = (second: string): string[] => [
      "image: { snapshot: base }",
      "files: [{ from: ./f, to: /f }]",
      `steps: [{ name: one, exec: "date +%N > /one" }, { name: two, exec: "${second}" }, { name: three, exec: "cat /f > /three" }]`,
    ];
    await recipe("cached", lines("echo 2 > /two"));
    await writeFile(join(folder, "cached", "f"), "f");
    const first = await build("cached");
    assert.deepEqual(cachedOf(first), [false, false, false, false]);
    const again = await build("cached");
    assert.deepEqual([again.unchanged, again.snapshot.id], [true, first.snapshot.id]);

    const old = await layersOf("cached");
    await recipe("cached", lines("echo zwei > /two"));
    const changed = await build("cached");
    assert.deepEqual(cachedOf(changed), [true, true, false, false]);
    const now = await layersOf("cached");
    assert.equal(now.length, 4);
    assert.equal(now.filter((tag) => old.includes(tag)).length, 2);
    assert.deepEqual(await contentOf("cached", "/two", "/three"), ["zwei", "f"]);

    await writeFile(join(folder, "cached", "f"), "other");
    assert.deepEqual(cachedOf(await build("cached")), [false, false, false, false]);
    assert.deepEqual(await contentOf("cached", "/three"), ["other"]);
    assert.deepEqual(cachedOf(await build("cached", ["--no-cache"])), [false, false, false, false]);

    assert.doesNotMatch((await daemon.cli(["snapshot", "ls"])).stdout, /build-cached-/);
    assert.match((await daemon.cli(["snapshot", "ls", "-a"])).stdout, /build-cached-/);
    assert.equal((await daemon.cli(["snapshot", "rm", "cached"])).code, 0);
    assert.deepEqual(await layersOf("cached"), []);
  });

  it("prints the output of a failing step, keeps the older snapshot, and continues from the step before", async () => {
    const lines = (last: string): string[] => ["image: { snapshot: base }", `steps: [{ exec: "echo 1 > /one" }, { exec: "${last}" }]`];
    await recipe("failing", lines("true"));
    const { snapshot } = await build("failing");
    await recipe("failing", lines("echo what went wrong >&2; exit 7"));
    const failed = await run(["build", "failing"]);
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /^what went wrong$/m);
    assert.match(failed.stderr, /it ended with exit code 7\.\n.* \[BUILD_FAILED\]/);
    assert.equal((await daemon.controller.getSnapshot("failing")).id, snapshot.id);
    assert.deepEqual(await daemon.controller.listSandboxes(), []);
    await recipe("failing", lines("echo fixed"));
    const fixed = await build("failing");
    assert.deepEqual(cachedOf(fixed), [true, false]);
    assert.notEqual(fixed.snapshot.id, snapshot.id);
  });

  it("leaves nothing incomplete after Ctrl-C", async () => {
    await recipe("slow", ["image: { snapshot: base }", 'steps: [{ exec: "true" }, { exec: "touch /begun; exec sleep 1000" }]']);
    const env = { ...daemon.env, FORKD_NO_AUTOSTART: "1" };
    const child = spawn(FORKD, ["build", join(folder, "slow")], { env, stdio: "ignore" });
    await until(async () => {
      const [sandbox] = await daemon.controller.listSandboxes({ metadata: { "forkd.build": "slow" } });
      return sandbox !== undefined && (await Sandbox.connect(sandbox.id, { controller: daemon.controller })).files.exists("/begun");
    });
    child.kill("SIGINT");
    assert.deepEqual(await once(child, "close"), [130, null]);
    await until(async () => (await daemon.controller.listSandboxes()).length === 0);
    assert.equal((await layersOf("slow")).length, 1, "the step that was complete");
    await assert.rejects(daemon.controller.getSnapshot("slow"), { code: "NOT_FOUND" });
  });

  it("builds one tag once when two commands ask for it at the same time", async () => {
    await recipe("shared", ["image: { snapshot: base }", 'steps: [{ exec: "sleep 1; date +%s%N > /made" }, { exec: "true" }]']);
    const both = await Promise.all([build("shared"), build("shared")]);
    assert.equal(both.filter(({ unchanged }) => unchanged).length, 1);
    assert.equal(both[0].snapshot.id, both[1].snapshot.id);
    assert.equal((await layersOf("shared")).length, 2);
  });

  it("leaves nothing of a build after the daemon was killed during it", async () => {
    await recipe("killed", ["image: { snapshot: base }", 'steps: [{ exec: "echo killed" }, { exec: "touch /begun; exec sleep 1000" }]']);
    const building = run(["build", "killed"]);
    await until(async () => {
      const [sandbox] = await daemon.controller.listSandboxes({ metadata: { "forkd.build": "killed" } });
      return sandbox !== undefined && (await Sandbox.connect(sandbox.id, { controller: daemon.controller })).files.exists("/begun");
    });
    await daemon.kill9();
    assert.equal((await building).code, 1);
    await daemon.up();
    await until(async () => (await daemon.controller.listSandboxes()).length === 0);
    const left = (await daemon.controller.listSnapshots()).filter(({ metadata }) => metadata["forkd.recipe"] === "killed");
    assert.deepEqual(
      left.map(({ metadata }) => metadata["forkd.step"]),
      ["echo killed"],
      "the step that was complete",
    );
    assert.deepEqual(await readdir(join(daemon.home.root, "staging")), []);
  });

  it("accepts variables, another tag, and tests that must succeed", async () => {
    await recipe("varied", [
      "image: { snapshot: base }",
      "vars: { rows: 3 }",
      'steps: [{ exec: "seq ${rows} > /rows" }]',
      "tests:",
      '  - { name: counts, exec: [wc, -l, /rows], expect: { stdout: "^${rows} " } }',
      "  - { name: evaluates, eval: 40 + 2, expect: { value: 42 } }",
      '  - { name: at most four, exec: "test $(wc -l < /rows) -le 4" }',
    ]);
    const four = await build("varied", ["--set", "rows=4", "--tag", "four", "--test"]);
    assert.deepEqual([four.tag, four.tests.map(({ name }) => name)], ["four", ["counts", "evaluates", "at most four"]]);
    const five = await run(["build", "varied", "--set", "rows=5", "--test", "--json"]);
    assert.deepEqual([five.code, codeOf(five)], [1, "TESTS_FAILED"]);
    await assert.rejects(daemon.controller.getSnapshot("varied"), { code: "NOT_FOUND" });
    assert.equal((await run(["recipes", "test", "varied"])).code, 0);
    assert.deepEqual(await contentOf("varied", "/rows"), ["1\n2\n3"]);
  });

  it("builds a recipe's base recipe when that changed", async () => {
    await recipe("upper", ["image: { recipe: lower }", 'steps: [{ exec: "cat /lower > /upper" }]']);
    await recipe("lower", ["image: { snapshot: base }", 'steps: [{ exec: "echo 1 > /lower" }]']);
    await build("upper");
    const { depth, parent_tag: parent } = await daemon.controller.getSnapshot("upper");
    assert.deepEqual([depth, parent], [3, "lower"]);
    await recipe("lower", ["image: { snapshot: base }", 'steps: [{ exec: "echo 2 > /lower" }]']);
    await build("upper");
    assert.deepEqual(await contentOf("upper", "/upper"), ["2"]);
  });

  it("gives network access to the steps, and not to the forks", async () => {
    await recipe("reaching", ["image: { snapshot: base }", 'network: { allow: ["192.0.2.1:80"] }', 'steps: [{ exec: "true" }]']);
    await build("reaching");
    const [layer = ""] = await layersOf("reaching");
    assert.equal((await daemon.controller.getSnapshot(layer)).network?.mode, "allow");
    assert.equal((await daemon.controller.getSnapshot("reaching")).network?.mode, "none");
  });

  it("waits for a program, a port, an HTTP answer, a line and code", async () => {
    await recipe("ready", [
      "image: { snapshot: base }",
      'steps: [{ start: [python3, -u, -m, http.server, "8000", -d, /srv], tag: web }]',
      "ready:",
      "  - port: 8000",
      "  - http: { port: 8000, path: /base }",
      '  - log: { process: web, line: "^.*GET /base" }',
      '  - exec: [grep, -q, ":1F40 ", /proc/net/tcp]',
      "  - eval: assert 1 + 1 == 2",
      "health:",
      "  - http: { port: 8000, path: /nothing, status: 404 }",
    ]);
    await build("ready");
    await using sandbox = await Sandbox.create("ready", { controller: daemon.controller });
    assert.equal(await (await sandbox.ports.fetch(8000, "/base")).text(), "base\n");
  });

  const checks: [what: string, part: "ready" | "health", check: string, why: RegExp][] = [
    ["a program", "ready", 'exec: [sh, -c, "echo why; exit 3"]', /^why$[^]*is not ready: exec sh -c .*: it ends with exit code 3 after/m],
    ["a port", "ready", "port: 9", /port 9: nothing listens there/],
    ["an answer", "ready", "http: { port: 8000, path: /none }", /http 8000\/none: it answers with status 404/],
    ["a line", "ready", "log: { process: web, line: never }", /log of web: never: there is no such line/],
    ["code", "ready", "eval: 1 / 0", /eval 1 \/ 0: ZeroDivisionError/],
    ["a fork", "health", 'exec: ["false"]', /is not healthy after a fork: exec false: it ends with exit code 1/],
  ];
  for (const [what, part, check, why] of checks)
    it(`reports which condition was not met: ${what}`, async () => {
      // the server is ready already, so a check that never succeeds can have a short timeout
      await recipe("unready", ["image: { snapshot: ready }", `${part}: [{ ${check}, timeout_secs: 0.2 }]`]);
      const { code, stderr } = await run(["build", "unready"]);
      assert.equal(code, 1);
      assert.match(stderr, why);
    });

  it("ends at once when the process ended whose line it waits for", async () => {
    await recipe("ended", [
      "image: { snapshot: base }",
      'steps: [{ start: [sh, -c, "echo gone; exit 4"], tag: it }]',
      "ready: [{ log: { process: it, line: here }, timeout_secs: 1000 }]",
    ]);
    const { code, stderr } = await run(["build", "ended"]);
    assert.equal(code, 1);
    assert.match(stderr, /^gone$[^]*process it ended with exit code 4/m);
  });

  it("is measured against a fresh VM", async () => {
    await recipe("measured", [
      "image: { recipe: python-numpy }",
      "files: [{ from: ./f, to: /srv/f }]",
      'steps: [{ exec: "cp /srv/f /srv/once", once: true }, { start: [sleep, "1000"] }]',
      'ready: [{ exec: "test -e /srv/base -a -e /srv/once" }]',
      "health: [{ exec: [pidof, sleep] }]",
    ]);
    await writeFile(join(folder, "measured", "f"), "f");
    const { code, stdout, stderr } = await run(["bench", "recipe", "./measured", "--rounds", "1", "--json"]);
    assert.equal(code, 0, stderr);
    const [figure] = (JSON.parse(stdout) as { figures: { recipe: string; fork_ms: number; fresh_ms: number }[] }).figures;
    assert.equal(figure?.recipe, "measured");
    assert.ok(figure.fork_ms > 0 && figure.fresh_ms > 0);
    assert.deepEqual(await daemon.controller.listSandboxes(), []);
    assert.ok((await daemon.controller.listSnapshots()).every(({ tag }) => !tag.startsWith("bench-")));
  });

  async function recipe(name: string, lines: string[]): Promise<void> {
    await mkdir(join(folder, name), { recursive: true });
    await writeFile(join(folder, name, "recipe.yaml"), [`name: ${name}`, "description: A test.", ...lines, ""].join("\n"));
  }

  /** Runs the CLI in the folder of the recipes, which are named after their folders */
  async function run(args: string[]): Promise<CliResult> {
    return daemon.cli(args, { cwd: folder });
  }

  async function build(name: string, args: string[] = []): Promise<Report> {
    const { code, stdout, stderr } = await run(["build", name, "--json", ...args]);
    assert.equal(code, 0, `${stdout}${stderr}`);
    return JSON.parse(stdout) as Report;
  }

  async function layersOf(tag: string): Promise<string[]> {
    return (await daemon.controller.listSnapshots({ metadata: { "forkd.build": tag } })).map((snapshot) => snapshot.tag);
  }

  async function contentOf(tag: string, ...paths: string[]): Promise<string[]> {
    await using sandbox = await Sandbox.create(tag, { controller: daemon.controller });
    return await Promise.all(paths.map(async (path) => (await sandbox.files.readText(path)).trim()));
  }
});

/** Whether each layer was cached */
function cachedOf({ steps }: Report): boolean[] {
  return steps.filter(({ title }) => title.startsWith("[")).map(({ cached }) => cached);
}

function codeOf({ stdout }: CliResult): string {
  return (JSON.parse(stdout) as { code: string }).code;
}

// All examples, with real frameworks and VMs, against a scripted model in a network namespace with only loopback.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { exampleNames, prepareExample, ROOT } from "../../examples/runner/examples.ts";
import { IN_NAMESPACE, withoutNamespace } from "../../examples/runner/namespace.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { until } from "../helpers/until.ts";

const OFFLINE = join(ROOT, "examples", "runner", "offline.ts");
const NODE = [process.execPath, "--disable-warning=ExperimentalWarning"];
const MOST_LINES = 150;
/** One asynchronous Python example and the TypeScript example */
const INTERRUPTED = ["langgraph", "vercel-ai"];

const missing = await withoutNamespace();
const skip = missing === undefined ? false : `no network namespace: ${missing}`;

type Outcome = { code: number | null; stdout: string; stderr: string };

describe("the examples", { skip }, () => {
  let daemon: TestDaemon;
  /** folder for temporary files */
  let scratch: string;
  const notInstalled = new Map<string, string>();

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    scratch = await mkdtemp(join(tmpdir(), "forkd-test-examples-"));
  });

  after(async () => {
    await rm(scratch, { recursive: true, force: true });
    await daemon[Symbol.asyncDispose]();
  });

  it("exist", () => assert.ok(exampleNames().length >= 6, exampleNames().join(", ")));

  for (const name of exampleNames()) {
    it(`${name} branches an agent: one history, several continuations`, async (context) => {
      try {
        await prepareExample(name, { note: (message) => context.diagnostic(message) });
      } catch (error) {
        const { stderr, message } = error as Error & { stderr?: string };
        notInstalled.set(name, `its packages cannot be installed here: ${(stderr || message).trim().split("\n").at(-1)}`);
        return context.skip(notInstalled.get(name));
      }
      const { code, stdout, stderr } = await example(name);
      assert.equal(code, 0, `${stderr}${stdout}`);

      const branches = linesWith(stdout, "branch ");
      const past = linesWith(stdout, "  shared past: ");
      const future = linesWith(stdout, "  own future:  ");
      assert.equal(branches.length, 3, stdout);
      assert.equal(new Set(branches.map((line) => line.split(" on ").at(-1))).size, 3, "each in a machine of its own");
      assert.equal(past.length, 3, stdout);
      assert.equal(new Set(past).size, 1, `what they remember of the time before differs: ${stdout}`);
      assert.equal(new Set(future).size, 3, `what they made of it is the same: ${stdout}`);

      const remembered = /notes begin with '(.*)'$/.exec(past[0] ?? "")?.[1] ?? "";
      const [untouched = ""] = linesWith(stdout, "its own machine was not touched: ");
      assert.equal(untouched.replace(/^\['(.*)'\]$/, "$1"), remembered, "the source has no line of a branch");
      assert.equal(linesWith(stdout, "winner: ").length, 1, stdout);
      assert.match(stdout, /no language model is involved/);
      assert.match(stdout, /^offline: nothing tried to reach another machine$/m);
      await assertNothingLeft();
    });
  }

  for (const name of INTERRUPTED) {
    it(`${name} leaves nothing behind after Ctrl-C`, async (context) => {
      const reason = notInstalled.get(name);
      if (reason) return context.skip(reason);
      const { code, stderr } = await example(name, { interruptAt: "branching" });
      assert.equal(code, 130, stderr);
      assert.equal(stderr, "");
      await assertNothingLeft();
    });
  }

  it("use the model of the given key and address", async (context) => {
    const reason = notInstalled.get("mcp");
    if (reason) return context.skip(reason);
    // the example uses the scripted model, in a namespace where only loopback is reachable
    const inside = [...IN_NAMESPACE, ...NODE, OFFLINE, join(ROOT, "examples", "run"), "mcp"];
    const { code, stdout, stderr } = await run(inside, { ...daemon.env, FORKD_NO_AUTOSTART: "1", OPENAI_MODEL: "scripted-tour-mcp" });
    assert.equal(code, 0, `${stderr}${stdout}`);
    assert.doesNotMatch(stdout, /no OPENAI_API_KEY/);
    assert.equal(new Set(linesWith(stdout, "  own future:  ")).size, 3, stdout);
  });

  it("in TypeScript type-check against their framework", async (context) => {
    const reason = notInstalled.get("vercel-ai");
    if (reason) return context.skip(reason);
    const { args } = await prepareExample("vercel-ai", { note: (message) => context.diagnostic(message) });
    const program = args.at(-1) ?? "";
    const config = join(dirname(program), "tsconfig.json");
    const compilerOptions = { preserveSymlinks: true, typeRoots: [join(ROOT, "node_modules", "@types")] };
    await writeFile(config, JSON.stringify({ extends: join(ROOT, "tsconfig.base.json"), compilerOptions, files: [program] }));
    const { code, stdout } = await run([join(ROOT, "node_modules", ".bin", "tsc"), "-p", config]);
    assert.equal(code, 0, stdout);
  });

  it("are listed when none is named", async () => {
    const { code, stderr } = await example("nonsense");
    assert.equal(code, 2);
    for (const name of exampleNames()) assert.ok(stderr.includes(name), stderr);
  });

  it("need the model that a key is for", async () => {
    const { code, stderr } = await example("mcp", { env: { OPENAI_API_KEY: "none" } });
    assert.equal(code, 1);
    assert.match(stderr, /OPENAI_MODEL is not/);
  });

  it("refuse to use a remote daemon offline", async () => {
    const { code, stderr } = await example("mcp", { env: { FORKD_URL: "http://127.0.0.1:1" } });
    assert.equal(code, 1);
    assert.match(stderr, /cannot be reached offline/);
  });

  it("refuse to run without a key where no network namespace can be made", async () => {
    const bin = await mkdtemp(join(tmpdir(), "forkd-test-examples-"));
    try {
      await writeFile(join(bin, "unshare"), "#!/bin/sh\necho 'not permitted' >&2\nexit 1\n", { mode: 0o755 });
      const { code, stdout, stderr } = await example("mcp", { env: { PATH: `${bin}:${process.env["PATH"]}` } });
      assert.deepEqual({ code, stdout }, { code: 1, stdout: "" });
      assert.match(stderr, /none can be made: not permitted\. Set OPENAI_API_KEY/);
    } finally {
      await rm(bin, { recursive: true });
    }
  });

  for (const name of exampleNames()) {
    it(`${name} is short and explained`, async () => {
      const files = await readdir(join(ROOT, "examples", name));
      const program = files.find((file) => file.startsWith("agent.")) ?? "";
      const lines = (await readFile(join(ROOT, "examples", name, program), "utf8")).split("\n").length;
      assert.ok(lines <= MOST_LINES, `${lines} lines`);
      assert.match(await readFile(join(ROOT, "examples", name, "README.md"), "utf8"), new RegExp(`examples/run ${name}`));
    });
  }

  async function example(name: string, opts: { env?: NodeJS.ProcessEnv; interruptAt?: string } = {}): Promise<Outcome> {
    const { OPENAI_API_KEY: _key, OPENAI_BASE_URL: _url, OPENAI_MODEL: _model, FORKD_TAG: _tag, ...env } = daemon.env;
    return run([join(ROOT, "examples", "run"), name], { ...env, TMPDIR: scratch, ...opts.env }, opts.interruptAt);
  }

  async function assertNothingLeft(): Promise<void> {
    // the daemon removes objects of an interrupted request when it detects the disconnect
    await until(async () => (await daemon.controller.listSandboxes()).length === 0);
    await until(async () => (await daemon.controller.listSnapshots()).every(({ tag }) => tag === "python"));
    assert.deepEqual(await readdir(scratch), [], "temporary files are left");
  }
});

describe("the network namespace of offline runs", { skip }, () => {
  // The namespace has the addresses of this test range; a throw route makes the upper half unreachable.
  const world = "ip link set lo up && ip address add 198.51.100.1/24 dev lo && ip route add throw 198.51.100.128/25";

  for (const [address, said] of [
    ["198.51.100.1", "nothing tried to reach another machine"],
    ["198.51.100.200", "failed attempts to reach another machine: 1"],
  ] as const) {
    it(`answers a connection to ${address}: ${said}`, async () => {
      const attempt = `require("node:net").connect(9, "${address}").on("error", () => undefined)`;
      const inside = [...NODE, OFFLINE, process.execPath, "-e", attempt];
      const { code, stdout, stderr } = await run([...IN_NAMESPACE, "sh", "-c", `${world} && exec "$@"`, "sh", ...inside]);
      assert.equal(code, 0, stderr);
      assert.match(stdout, new RegExp(`^offline: ${said}$`, "m"));
    });
  }
});

async function run([program = "", ...args]: string[], env: NodeJS.ProcessEnv = process.env, interruptAt?: string): Promise<Outcome> {
  const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  if (interruptAt !== undefined) {
    let seen = "";
    child.stdout.on("data", (data: Buffer) => {
      const before = seen.includes(interruptAt);
      seen += data.toString();
      if (!before && seen.includes(interruptAt)) child.kill("SIGINT");
    });
  }
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return { code: child.exitCode, stdout, stderr };
}

/** The rest of each line that begins with `start` */
function linesWith(output: string, start: string): string[] {
  return output.split("\n").flatMap((line) => (line.startsWith(start) ? [line.slice(start.length)] : []));
}

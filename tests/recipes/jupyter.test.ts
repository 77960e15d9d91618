// The recipe jupyter: its warm kernel, used by jupyter_kernel_client (PyPI) over HTTP and WebSockets through the proxy.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { pythonWith } from "../helpers/e2b-python.ts";
import { patience } from "../helpers/patience.ts";
import { buildRecipe } from "../helpers/recipe.ts";

const run = promisify(execFile);
const CLIENT = resolve(import.meta.dirname, "..", "helpers", "jupyter-client.py");
const found = await pythonWith({ "jupyter-kernel-client": "1.0.2" });

type Reply = { status: string; execution_count: number; outputs: { name?: string; text?: string; data?: Record<string, string> }[] };

describe("recipe jupyter", { skip: "reason" in found ? found.reason : false }, () => {
  let daemon: TestDaemon;
  let tag: string;
  let token: string;
  let first: Sandbox;
  let second: Sandbox;

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    tag = await buildRecipe(daemon, "jupyter", { test: true });
    token = (await daemon.controller.createToken("notebooks")).token;
    first = await Sandbox.create(tag, { controller: daemon.controller });
    second = await Sandbox.create(tag, { controller: daemon.controller });
  });

  after(async () => daemon[Symbol.asyncDispose]());

  /** Output of each cell and the value of its last line */
  async function cells(sandbox: Sandbox, ...code: string[]): Promise<string[]> {
    assert.ok("python" in found);
    const server = `http://${daemon.bind}/v1/sandboxes/${sandbox.id}/proxy/8888`;
    const { stdout } = await run(found.python, [CLIENT, server, token, ...code], { timeout: patience(40) });
    return (JSON.parse(stdout) as Reply[]).map(({ outputs }) =>
      outputs.map(({ text, data }) => text ?? data?.["text/plain"] ?? "?").join(""),
    );
  }

  it("has run warm.py in the kernel of every fork", async () => {
    const code = ["print('numpy' in dir())", "model.round(6).tolist()"];
    const answers = await Promise.all([cells(first, ...code), cells(second, ...code)]);
    for (const answer of answers) assert.deepEqual(answer, ["True\n", "[3.0, -2.0, 1.0]"]);
  });

  it("keeps the state of each fork across connections", async () => {
    await Promise.all([cells(first, "model[:] = 1; note = 'first'"), cells(second, "model[:] = 2")]);
    const code = ["model.tolist()", "'note' in globals()"];
    assert.deepEqual(await cells(first, ...code), ["[1.0, 1.0, 1.0]", "True"]);
    assert.deepEqual(await cells(second, ...code), ["[2.0, 2.0, 2.0]", "False"]);
  });

  it("continues in forks of a fork", async () => {
    const [child] = await first.fork(1);
    assert.ok(child);
    await using fork = child;
    assert.deepEqual(await cells(fork, "note", "note = 'fork'"), ["'first'", ""]);
    assert.deepEqual(await cells(first, "note"), ["'first'"]);
  });

  it("draws different random numbers in each fork", async () => {
    const code = ["import random; random.random()", "numpy.random.random()"];
    const [a, b] = await Promise.all([cells(first, ...code), cells(second, ...code)]);
    for (const index of code.keys()) assert.notEqual(a[index], b[index]);
  });

  it("serves notebook files", async () => {
    const body = JSON.stringify({ type: "file", format: "text", content: "x = 1\n" });
    const saved = await first.ports.fetch(8888, "/api/contents/own.py", { method: "PUT", body });
    assert.equal(saved.status, 201);
    assert.equal(await first.files.readText("/home/jupyter/own.py"), "x = 1\n");
    assert.equal((await second.ports.fetch(8888, "/api/contents/own.py")).status, 404);
  });
});

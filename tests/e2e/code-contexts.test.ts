// Contexts, streams and results of eval on real VMs, across forks, branches and restarts of the daemon.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

import type { EvalResult } from "forkd";

describe("contexts", { timeout: patience(60) }, () => {
  let daemon: TestDaemon;
  let sandbox: Sandbox;
  let shell: string;
  let other: string;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    sandbox = await Sandbox.create("python", { controller: daemon.controller, env: { COLOUR: "blue" } });
    shell = (await sandbox.contexts.create("bash", { cwd: "/usr", env: { OWN: "mine" } })).id;
    other = (await sandbox.contexts.create("python", { cwd: "/tmp" })).id;
    await sandbox.eval("x=5; f() { echo f-$1; }", { context: shell });
    await sandbox.eval("import random; x = 6", { context: other });
    await sandbox.eval("x = 7");
  });
  after(async () => daemon[Symbol.asyncDispose]());

  const stateOf = async (where: Sandbox): Promise<unknown[]> => [
    (await where.eval("echo $x $PWD $OWN $(f 1)", { context: shell })).stdout,
    (await where.eval("import os; (x, os.getcwd(), os.environ['COLOUR'])", { context: other })).result,
    (await where.eval("(x, os.environ['COLOUR'])")).result,
  ];
  const STATE = ["5 /usr mine f-1\n", "(6, '/tmp', 'blue')", "(7, 'blue')"];

  test("have their own state, folder and environment", async () => {
    assert.deepEqual(await stateOf(sandbox), STATE);
  });

  test("survive in forks, with different random numbers", async () => {
    const draw = async (where: Sandbox): Promise<string> => {
      const { stdout } = await where.eval("echo $RANDOM", { context: shell });
      return stdout + (await where.eval("random.random()", { context: other })).result;
    };
    const children = await sandbox.fork(2);
    for (const child of children) {
      assert.deepEqual(await stateOf(child), STATE);
      assert.deepEqual(
        (await child.contexts.list()).map(({ id }) => id),
        ["python", shell, other],
      );
      const states = Object.values(child.info.certificate.kernels).map(({ state }) => state);
      assert.deepEqual(states, ["reseeded", "reseeded", "reseeded"]);
    }
    const drawn = new Set(await Promise.all([sandbox, ...children].map(draw)));
    assert.equal(drawn.size, 3);
    await Promise.all(children.map(async (child) => child.kill()));
  });

  test("survive a restart of the daemon, and are in a branch made by the next one", async () => {
    await daemon.kill9();
    await daemon.up();
    const [child] = await sandbox.fork();
    assert.ok(child);
    assert.deepEqual(await stateOf(child), STATE);
    assert.deepEqual(await stateOf(sandbox), STATE);
    const restarted = await sandbox.contexts.restart(shell);
    assert.deepEqual([restarted.cwd, restarted.language], ["/usr", "bash"]);
    assert.equal((await sandbox.eval("echo [$x] $PWD $OWN", { context: shell })).stdout, "[] /usr mine\n");
    await child.kill();
  });

  test("run concurrently, and one is interrupted without effect on the others", async () => {
    let seen = "";
    const long = sandbox.eval("echo begun; sleep 600", { context: shell, throwOnError: false, onStdout: (text) => void (seen += text) });
    await until(() => seen === "begun\n");
    assert.equal((await sandbox.eval("x")).value, 7);
    await sandbox.contexts.interrupt(shell);
    assert.equal((await long).exit_code, 130);
  });

  test("code whose client disconnects is interrupted", async () => {
    const gone = new AbortController();
    const code = "import time\ntry:\n    print('begun')\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    interrupted = True\n    raise";
    const running = sandbox.eval(code, { signal: gone.signal, onStdout: () => gone.abort() });
    await assert.rejects(running, { name: "AbortError" });
    assert.equal((await sandbox.eval("interrupted")).value, true);
  });

  test("a context whose interpreter was killed has ended, and can be restarted", async () => {
    await assert.rejects(sandbox.eval("import os; os._exit(1)", { context: other }), { code: "KERNEL_DIED" });
    assert.equal((await sandbox.contexts.list()).find(({ id }) => id === other)?.state, "ended");
    await assert.rejects(sandbox.eval("1", { context: other }), { code: "KERNEL_DIED" });
    await sandbox.contexts.restart(other);
    assert.equal((await sandbox.eval("import os; os.getcwd()", { context: other })).value, "/tmp");
    await sandbox.contexts.remove(other);
    await assert.rejects(sandbox.eval("1", { context: other }), { code: "NOT_FOUND" });
  });

  test("results of every interpreter are bounded", async () => {
    const many = await sandbox.eval("for i in range(300): display(i)");
    assert.deepEqual([many.results.length, many.truncated], [256, true]);
    // Results that the kernel rejects, and results that code writes to the control channel directly
    const shown = "class Big:\n    def _repr_html_(self): return 'x' * (9 << 20)\nBig()";
    assert.deepEqual((await sandbox.eval(shown)).results, [{ is_main: true, data: {}, omitted: { "text/html": (9 << 20) + 2 } }]);
    const past = "import os, re, sys\nnumber = int(re.search(r'\\d+', sys._getframe().f_code.co_filename)[0])\n";
    const line = `'{"event":"display","id":%d,"data":{"text/html":"%s"}}\\n' % (number, 'y' * (10 << 20))`;
    const forged: EvalResult = await sandbox.eval(
      `${past}def put(bytes):\n    while bytes: bytes = bytes[os.write(3, bytes):]\nfor i in range(2): put((${line}).encode())`,
    );
    assert.deepEqual([forged.results.length, forged.truncated], [1, true]);
  });
});

// Code in warm interpreters: values, state, output, errors, timeouts, and failing warm-ups.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { rejection, sh, value } from "../helpers/guest.ts";
import { tracesOf, vmmsOf } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { NODE_WARM, PYTHON_IMAGE, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

/** Timeout for code that does not end: many times the duration of the lines before its loop */
const SHORT_MS = patience(0.1);

describe("python", () => {
  let vm: TestVm;
  let sandbox: Sandbox;
  before(async () => {
    vm = await startVm("eval-python");
    sandbox = await vm.fork();
    await value(sandbox, "import sys");
  });
  after(async () => vm.close());

  it("returns the value of the last expression and nothing for statements", async () => {
    const expression = await sandbox.eval("x = 20\ny = 22\nx + y");
    assert.deepEqual([expression.text, expression.json, expression.error, expression.stdout], ["42", 42, null, ""]);
    for (const code of ["x = 1", "", "# nothing", "None", "def f(): return 3"]) {
      const result = await sandbox.eval(code);
      assert.deepEqual([result.text, "json" in result, result.error], [null, false, null], code);
    }
  });

  it("keeps its state between calls, including that of the warm-up", async () => {
    assert.deepEqual(await value(sandbox, "warmed"), [1, 2]);
    await value(sandbox, "def twice(a):\n    return a * 2\nimport math");
    assert.equal(await value(sandbox, "twice(math.floor(21.5))"), 42);
  });

  it("returns JSON only if it represents the value exactly; tuples are arrays", async () => {
    const nested = { a: [1, 2.5, "ü", null, true], b: {} };
    assert.deepEqual(await value(sandbox, "{'a': [1, 2.5, 'ü', None, True], 'b': {}}"), nested);
    assert.deepEqual(await value(sandbox, "(1, (2, 'a'))"), [1, [2, "a"]]);
    for (const code of ["{1: 2}", "2**60", "float('nan')", "numpy.arange(3)", "object()", "{1, 2}", "b'x'"]) {
      const result = await sandbox.eval(code);
      assert.equal(result.error, null);
      assert.notEqual(result.text, null, code);
      assert.equal("json" in result, false, `${code} gave ${JSON.stringify(result.json)}`);
    }
    assert.equal((await sandbox.eval("numpy.arange(3)")).text, "array([0, 1, 2])");
  });

  it("streams output while the code runs, in order", async () => {
    const events: string[] = [];
    const first = Promise.withResolvers<void>();
    const running = sandbox.eval(
      "import os\nfor i in range(3):\n    print('out', i)\n    print('err', i, file=sys.stderr)\nos.system('echo from a child')\nwhile not os.path.exists('/tmp/go-on'): time.sleep(0.01)\nprint('last')",
      {
        onStdout: (text) => {
          events.push(text.toString());
          first.resolve();
        },
        onStderr: (text) => void events.push(text.toString()),
        timeoutMs: patience(),
      },
    );
    await first.promise; // the code waits for the file, so this would hang if output came only at the end
    await sandbox.files.write("/tmp/go-on", "");
    const result = await running;
    assert.equal(result.stdout, "out 0\nout 1\nout 2\nfrom a child\nlast\n");
    assert.equal(result.stderr, "err 0\nerr 1\nerr 2\n");
    assert.equal(events.join("").length, result.stdout.length + result.stderr.length);
  });

  it("reports type, message and traceback of an exception", async () => {
    const result = await sandbox.eval("def inner():\n    return 1 / 0\nprint('before')\ninner()");
    assert.equal(result.stdout, "before\n");
    assert.deepEqual([result.error?.type, result.error?.message, result.text], ["ZeroDivisionError", "division by zero", null]);
    assert.match(
      result.error?.traceback ?? "",
      /Traceback[\s\S]*line 4[\s\S]*inner\(\)[\s\S]*line 2, in inner[\s\S]*return 1 \/ 0[\s\S]*ZeroDivisionError: division by zero/,
    );
    assert.doesNotMatch(result.error?.traceback ?? "", /forkd\/kernels/);
    assert.equal((await sandbox.eval("def f(:")).error?.type, "SyntaxError");
    assert.equal((await sandbox.eval("import sys; sys.exit(3)")).error?.type, "SystemExit");
    assert.equal(await value(sandbox, "1 + 1"), 2);
  });

  for (const [what, code] of [
    ["a loop", "kept = 'kept'\nwhile True: pass"],
    ["a sleep", "kept = 'kept'\ntime.sleep(1000)"],
    ["a child process", "kept = 'kept'\nimport subprocess; subprocess.run(['sleep', '1000'])"],
    [
      "a loop that catches exceptions",
      "kept = 'kept'\nn = 0\nwhile n < 2:\n    try:\n        while True: pass\n    except KeyboardInterrupt:\n        n += 1",
    ],
  ] as const) {
    it(`interrupts ${what} at the time-out and stays usable`, async () => {
      const child = await vm.fork();
      await rejection(child.eval(code, { timeoutMs: SHORT_MS }), "EVAL_TIMEOUT");
      assert.equal(await value(child, "kept"), "kept");
      assert.equal(await value(child, "6 * 7"), 42);
      await child.kill();
    });
  }

  it("keeps a waiting eval's time-out from interrupting the running one", async () => {
    const started = Promise.withResolvers<void>();
    const running = sandbox.eval("print('on')\nwhile not os.path.exists('/tmp/waited'): pass\n'ran to its end'", {
      onStdout: () => started.resolve(),
    });
    await started.promise;
    await rejection(sandbox.eval("'too late'", { timeoutMs: 100 }), "EVAL_TIMEOUT");
    await sandbox.files.write("/tmp/waited", "");
    const result = await running;
    assert.deepEqual([result.json, result.error], ["ran to its end", null]);
  });

  it("is interrupted when the caller aborts", async () => {
    const controller = new AbortController();
    const running = sandbox.eval("print('on')\nwhile True: pass", {
      signal: controller.signal,
      onStdout: () => controller.abort(new Error("enough")),
    });
    await rejection(running, "CANCELLED");
    assert.equal(await value(sandbox, "'there'"), "there");
  });

  it("runs evals one after another, in order", async () => {
    await value(sandbox, "order = []");
    await Promise.all(Array.from({ length: 10 }, async (_, i) => sandbox.eval(`order.append(${i})`)));
    assert.deepEqual(await value(sandbox, "order"), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it("prints 5 MB without loss, and drops only output over 8 MiB", async () => {
    const five = await sandbox.eval("print('x' * 5_000_000)", { timeoutMs: patience() });
    assert.equal(five.stdout.length, 5_000_001);
    assert.equal(five.truncated, false);
    let streamed = 0;
    const ten = await sandbox.eval("print('y' * 10_000_000)", {
      timeoutMs: patience(),
      onStdout: (text) => void (streamed += text.length),
    });
    assert.equal(ten.truncated, true);
    assert.ok(ten.stdout.length <= 8 * 1024 * 1024);
    assert.equal(streamed, 10_000_001);
  });

  it("fails pending evals when the interpreter dies, and reports it afterwards", async () => {
    const child = await vm.fork();
    await rejection(child.eval("import os; os._exit(1)"), "KERNEL_DIED");
    await rejection(child.eval("1"), "KERNEL_DIED");
    assert.equal(await sh(child, "echo the sandbox lives"), "the sandbox lives");
    await child.kill();
  });

  it("fails pending evals when the sandbox is ended", async () => {
    const child = await vm.fork();
    const started = Promise.withResolvers<void>();
    const running = child.eval("print('on')\nwhile True: pass", { onStdout: () => started.resolve() });
    const expected = rejection(running, ["AGENT_LOST", "VMM_EXITED"]);
    await started.promise;
    await child.kill();
    await expected;
  });

  it("is the only kernel of its snapshot", async () => {
    const error = await rejection(sandbox.eval("1", { language: "node" }), "KERNEL_MISSING");
    assert.match(error.message, /node/);
  });

  describe("warm-up", () => {
    async function failsWith(
      name: string,
      warmUp: NonNullable<Parameters<TestVm["runtime"]["createSnapshot"]>[0]["warmUp"]>,
    ): Promise<string> {
      const earlier = await tracesOf(vm.home);
      const vmms = vmmsOf(vm.runtime.runDir);
      const tag = `${vm.tag}-${name}`;
      const error = await rejection(vm.runtime.createSnapshot({ tag, image: PYTHON_IMAGE, memoryMiB: 256, warmUp }), "WARMUP_FAILED");
      await rejection(vm.runtime.snapshots.get(tag), "NOT_FOUND");
      assert.deepEqual(await tracesOf(vm.home), earlier);
      assert.deepEqual(vmmsOf(vm.runtime.runDir), vmms);
      return error.message;
    }

    it("that raises leaves no snapshot and reports the error", async () => {
      const message = await failsWith("raises", {
        kernels: [{ language: "python", code: "print('about to')\nraise RuntimeError('the warm-up broke')" }],
      });
      assert.match(message, /about to[\s\S]*Traceback[\s\S]*line 2[\s\S]*RuntimeError: the warm-up broke/);
    });

    it("that hangs leaves no snapshot", async () => {
      assert.match(
        await failsWith("hangs", { kernels: [{ language: "python", code: "while True: pass" }], timeoutMs: 3000 }),
        /hangs|did not end|not ready/,
      );
    });

    it("program that fails leaves no snapshot and shows its output", async () => {
      const message = await failsWith("exit-3", { exec: [["true"], ["sh", "-c", "echo to stdout; echo to stderr >&2; exit 3"]] });
      assert.match(message, /exited with 3/);
      assert.match(message, /to stdout/);
      assert.match(message, /to stderr/);
    });

    it("with a kernel that the image lacks leaves no snapshot", async () => {
      const earlier = await tracesOf(vm.home);
      const error = await rejection(
        vm.runtime.createSnapshot({
          tag: `${vm.tag}-lacks`,
          image: PYTHON_IMAGE,
          memoryMiB: 256,
          warmUp: { kernels: [{ language: "node" }] },
        }),
        ["EXEC_FAILED", "WARMUP_FAILED"],
      );
      assert.match(error.message, /node/);
      assert.deepEqual(await tracesOf(vm.home), earlier);
    });
  });
});

describe("node", () => {
  let vm: TestVm;
  let sandbox: Sandbox;
  before(async () => {
    vm = await startVm("eval-node", { spec: NODE_WARM });
    sandbox = await vm.fork();
  });
  after(async () => vm.close());

  it("returns values, and JSON if it represents them exactly", async () => {
    const sum = await sandbox.eval("const a = 20; a + 22");
    assert.deepEqual([sum.text, sum.json, sum.error], ["42", 42, null]);
    assert.deepEqual(await value(sandbox, "({ a: [1, null, 'ü'] })"), { a: [1, null, "ü"] });
    for (const code of ["new Map([[1, 2]])", "10n", "NaN", "() => 1", "new Date(0)"]) {
      const result = await sandbox.eval(code);
      assert.notEqual(result.text, null, code);
      assert.equal("json" in result, false, code);
    }
    assert.equal((await sandbox.eval("undefined")).text, null);
  });

  it("keeps its state, and allows a const to be declared again", async () => {
    assert.deepEqual(await value(sandbox, "warmed"), [1, 2]);
    await value(sandbox, "const again = 1; function twice(n) { return n * 2 }");
    assert.equal(await value(sandbox, "const again = 21; twice(again)"), 42);
  });

  it("awaits at the top level", async () => {
    assert.equal(await value(sandbox, "const later = await new Promise((r) => setTimeout(r, 20, 'later')); later"), "later");
    assert.equal(await value(sandbox, "Promise.resolve(5)"), 5);
  });

  it("streams output", async () => {
    const result = await sandbox.eval("console.log('out'); console.error('err'); process.stdout.write('x'.repeat(1_000_000)); 1");
    assert.equal(result.stdout, `out\n${"x".repeat(1_000_000)}`);
    assert.equal(result.stderr, "err\n");
  });

  it("reports what was thrown", async () => {
    const thrown = await sandbox.eval("function inner() { throw new TypeError('not so') }\ninner()");
    assert.deepEqual([thrown.error?.type, thrown.error?.message], ["TypeError", "not so"]);
    assert.match(thrown.error?.traceback ?? "", /TypeError: not so[\s\S]*at inner/);
    assert.equal((await sandbox.eval("const = 1")).error?.type, "SyntaxError");
    assert.equal((await sandbox.eval("await Promise.reject(new RangeError('far'))")).error?.type, "RangeError");
    assert.equal(await value(sandbox, "'alive'"), "alive");
  });

  for (const code of ["globalThis.kept = 'kept'; for (;;) {}", "globalThis.kept = 'kept'; await new Promise(() => {})"]) {
    it(`interrupts ${code} at the time-out and stays usable`, async () => {
      await rejection(sandbox.eval(code, { timeoutMs: SHORT_MS }), "EVAL_TIMEOUT");
      assert.equal(await value(sandbox, "kept"), "kept");
    });
  }

  it("is the only kernel of its snapshot", async () => {
    await rejection(sandbox.eval("1", { language: "python" }), "KERNEL_MISSING");
  });
});

// The kernels under the host's own python3 and node: state, values, errors, order, interrupts, reseed.

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { open } from "node:fs/promises";
import { KernelProcess } from "./kernel-process.ts";

const SEED = "ab".repeat(32);
const MOST_TEXT = 1024 * 1024;

type Sample = {
  name: "python" | "node";
  random: string;
  generator: string;
  print: string;
  longError: string;
  values: [code: string, text: string | null, json?: unknown][];
  errors: [code: string, type: string, message: RegExp, traceback: RegExp][];
  busy: string[];
};

const languages: Sample[] = [
  {
    name: "python",
    random: "__import__('random').random()",
    generator: "random",
    longError: "class Error(Exception): pass\nraise Error('x' * (1 << 21))",
    print: "import sys\nfor i in range(3): print('line', i)\nprint('last', end='')",
    values: [
      ["x = 20", null],
      ["def double(n):\n    return 2 * n", null],
      ["double(x) + 2", "42", 42],
      ["None", null],
      ["(1, 2)", "(1, 2)"],
      ["[1, 2.5, 'ä', None, True, {'a': []}]", "[1, 2.5, 'ä', None, True, {'a': []}]", [1, 2.5, "ä", null, true, { a: [] }]],
      ["{1: 2}", "{1: 2}"],
      ["float('nan')", "nan"],
      ["2 ** 60", "1152921504606846976"],
      ["[(1,)]", "[(1,)]"],
      ["l = []; l.append(l); l", "[[...]]"],
      ["class Point: pass\nimport pickle\ntype(pickle.loads(pickle.dumps(Point()))) is Point", "True", true],
      ["__name__", "'__main__'", "__main__"],
      ["import asyncio\nawait asyncio.sleep(0.01)\n'waited'", "'waited'", "waited"],
      ["len('x' * (1 << 21))", "2097152", 2097152],
      ["x", "20", 20],
      ["", null],
    ],
    errors: [
      [
        "1 / 0",
        "ZeroDivisionError",
        /^division by zero$/,
        /^Traceback[^]*<eval \d+>", line 1[^]*1 \/ 0[^]*ZeroDivisionError: division by zero$/,
      ],
      [
        "def inner():\n    raise ValueError('no')\n\ninner()",
        "ValueError",
        /^no$/,
        /line 4[^]*inner\(\)[^]*line 2, in inner[^]*raise ValueError/,
      ],
      ["def f(:", "SyntaxError", /invalid syntax/, /<eval \d+>", line 1/],
      ["import sys\nsys.exit(3)", "SystemExit", /^3$/, /SystemExit: 3/],
      ["exit(4)", "SystemExit", /^4$/, /SystemExit: 4/],
      ["input()", "EOFError", /EOF/, /EOFError/],
      ["return 1", "SyntaxError", /return/, /SyntaxError/],
    ],
    busy: ["while True: pass", "import time\ntime.sleep(60)", "import asyncio\nawait asyncio.sleep(60)"],
  },
  {
    name: "node",
    random: "Math.random()",
    generator: "Math.random",
    longError: "throw new Error('x'.repeat(1 << 21))",
    print: "for (let i = 0; i < 3; i++) console.log('line', i)\nprocess.stdout.write('last'); undefined",
    values: [
      ["const x = 20", null],
      ["function double(n) { return 2 * n }", null],
      ["double(x) + 2", "42", 42],
      ["const x = 21; let y = 1; class A {}", null],
      ["let y = 2; class A { b() { return 3 } }\nx + y + new A().b()", "26", 26],
      ["undefined", null],
      ["({ a: [1, 'ä', null] })", "{ a: [ 1, 'ä', null ] }", { a: [1, "ä", null] }],
      ["new Map([[1, 2]])", "Map(1) { 1 => 2 }"],
      ["NaN", "NaN"],
      ["10n", "10n"],
      ["[1, , 2]", "[ 1, <1 empty item>, 2 ]"],
      ["({ a: undefined })", "{ a: undefined }"],
      ["const { q } = await Promise.resolve({ q: 9 }); q", "9", 9],
      ["q + 1", "10", 10],
      ["Promise.resolve('later')", "'later'", "later"],
      ["require('node:os').EOL", "'\\n'", "\n"],
      ["(await import('node:path')).basename('/a/b') + \" import('x')\"", "\"b import('x')\"", "b import('x')"],
      ["crypto.randomUUID().length + require('node:crypto').randomBytes(3).length", "39", 39],
    ],
    errors: [
      ["null.x", "TypeError", /Cannot read properties of null/, /^TypeError[^]*at eval-\d+:1:6$/],
      [
        "function inner() { throw new RangeError('no') }\ninner()",
        "RangeError",
        /^no$/,
        /at inner \(eval-\d+:1:\d+\)\n {4}at eval-\d+:2:1$/,
      ],
      ["let = 5 5", "SyntaxError", /Unexpected/, /eval-\d+:1:9/],
      ["throw 5", "number", /^5$/, /^Uncaught 5$/],
      ["process.exit(3)", "SystemExit", /^3$/, /SystemExit: 3/],
      ["Promise.reject(new Error('rejected'))", "Error", /^rejected$/, /Error: rejected/],
    ],
    busy: ["while (true);", "await new Promise((done) => setTimeout(done, 60000))", "new Promise(() => {})"],
  },
];

for (const language of languages) {
  describe(`kernel ${language.name}`, { timeout: 60_000 }, () => {
    const kernel = new KernelProcess(language.name);
    after(() => kernel.process.kill("SIGKILL"));

    test("says that it is ready", async () => {
      let ready = await kernel.next();
      if (language.name === "python") {
        assert.equal(ready.event, "generators");
        ready = await kernel.next();
      }
      assert.deepEqual([ready.event, ready.language], ["ready", language.name]);
    });

    test("keeps state, and tells values as text and, where that is exact, as JSON", async () => {
      for (const [code, text, json] of language.values) {
        const { event, text: got, json: gotJson, traceback } = await kernel.eval(code);
        assert.deepEqual([event, got, gotJson], ["result", text, json], `${code}: ${traceback}`);
      }
    });

    test("reports errors with the code's own frames only", async () => {
      for (const [code, type, message, traceback] of language.errors) {
        const error = await kernel.eval(code);
        assert.deepEqual([error.event, error.type], ["error", type], code);
        assert.match(error.message ?? "", message);
        assert.match(error.traceback ?? "", traceback);
        assert.doesNotMatch(error.traceback ?? "", /kernels\/|node:inspector/);
      }
    });

    test("has written all output when the result comes", async () => {
      kernel.seen.length = 0;
      const { event } = await kernel.eval(language.print);
      assert.equal(event, "result");
      while (!kernel.seen.join("").includes("last")) await sleep(5);
      const output = kernel.seen.filter((entry) => entry.startsWith("out:")).map((entry) => entry.slice(4));
      assert.equal(output.join(""), "line 0\nline 1\nline 2\nlast");
    });

    test("ignores lines that are not messages", async () => {
      kernel.control.write('{"op":"eval","id":1,"co\n\n[1]\nnull\n"x"\n{"op":"dance"}\n');
      assert.equal((await kernel.eval("7")).text, "7");
    });

    test("answers evals in the order of arrival", async () => {
      const ids = ["1", "2", "3"].map((code) => kernel.start(code));
      for (const id of ids) assert.equal((await kernel.next()).id, id);
    });

    test("SIGINT interrupts the running eval and nothing else", async () => {
      kernel.interrupt();
      for (const code of language.busy) {
        const id = kernel.start(code);
        const answer = kernel.next();
        // one that comes before the code runs is for nobody
        for (let isOver = false; !isOver;) {
          kernel.interrupt();
          isOver = await Promise.race([answer.then(() => true), sleep(50, false)]);
        }
        const error = await answer;
        assert.deepEqual([error.event, error.id, error.type], ["error", id, "KeyboardInterrupt"], code);
        assert.doesNotMatch(error.traceback ?? "", /kernels\//);
        kernel.interrupt();
        kernel.interrupt();
        assert.equal((await kernel.eval("7")).text, "7");
      }
    });

    test("a storm of SIGINT does not end it", async () => {
      for (let round = 0; round < 100; round++) {
        const id = kernel.start("1 + 1");
        for (let burst = 0; burst < 4; burst++) kernel.interrupt();
        assert.equal((await kernel.next()).id, id);
      }
      assert.equal(kernel.process.exitCode, null);
    });

    test("reseed makes the generators repeat, and another seed does not", async () => {
      const draw = async (seed: string) => {
        const { event, generators } = await kernel.reseed(900, seed);
        assert.equal(event, "reseeded");
        assert.ok(generators?.includes(language.generator));
        return (await kernel.eval(language.random)).text;
      };
      const first = await draw(SEED);
      assert.equal(await draw(SEED), first);
      assert.notEqual(await draw("cd".repeat(32)), first);
      assert.equal((await kernel.reseed(901, "zz")).event, "error");
    });

    test("cuts a long error off", async () => {
      const { type, message = "", traceback = "" } = await kernel.eval(language.longError);
      assert.equal(type, "Error");
      assert.deepEqual([message.length, message.at(-1)], [MOST_TEXT + 1, "…"]);
      assert.deepEqual([traceback.length, traceback.at(-1)], [MOST_TEXT + 1, "…"]);
    });

    test("ends when the control channel ends", async () => {
      assert.equal(await kernel.close(), 0);
    });
  });
}

describe("generators of the python kernel", { timeout: 60_000 }, () => {
  test("are where it says: what is written there is what they give next", async () => {
    const kernel = new KernelProcess("python");
    try {
      const { regions = [], complete } = await kernel.next();
      assert.equal(complete, true);
      await kernel.next();
      await using memory = await open(`/proc/${kernel.process.pid}/mem`, "r+");
      for (const [, address, length] of regions) await memory.write(Buffer.alloc(length), 0, length, address);
      assert.equal((await kernel.eval("__import__('random').random()")).json, 0);
    } finally {
      kernel.process.kill("SIGKILL");
    }
  });

  test("numpy, found only after a fork in the same eval, is seeded anew, and only then", async () => {
    const kernel = new KernelProcess("python");
    try {
      const { regions = [] } = await kernel.next();
      await kernel.next();
      await using memory = await open(`/proc/${kernel.process.pid}/mem`, "r+");
      const [, address = 0, length = 0] = regions.find(([name]) => name === "generation") ?? [];
      // stands in for the module: what counts is when it is seeded
      await kernel.eval("import sys, types, time\nseeds = []\nfake = types.SimpleNamespace(seed=seeds.append)");
      kernel.start("sys.modules['numpy.random.mtrand'] = fake\nprint('imported')\ntime.sleep(1.5)");
      while (!kernel.seen.some((text) => text.includes("imported"))) await sleep(10);
      await memory.write(Buffer.alloc(length, 7), 0, length, address);
      assert.equal((await kernel.next()).event, "generators");
      assert.equal((await kernel.next()).event, "result");
      assert.equal((await kernel.eval("len(seeds), len(seeds[0])")).text, "(1, 8)");
    } finally {
      kernel.process.kill("SIGKILL");
    }
  });

  test("numpy is not seeded when no fork came between", async () => {
    const kernel = new KernelProcess("python");
    try {
      await kernel.next();
      await kernel.next();
      kernel.start("import sys, types\nseeds = []\nsys.modules['numpy.random.mtrand'] = types.SimpleNamespace(seed=seeds.append)");
      assert.equal((await kernel.next()).event, "generators");
      assert.equal((await kernel.next()).event, "result");
      assert.equal((await kernel.eval("seeds")).text, "[]");
    } finally {
      kernel.process.kill("SIGKILL");
    }
  });
});

// The kernels with the host's python3 and node: state, values, errors, order, interrupts, reseed.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../../../tests/helpers/until.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
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
      ["(1, 2)", "(1, 2)", [1, 2]],
      ["{'a': (1, ('b', None)), 'c': [(), (2.5,)]}", "{'a': (1, ('b', None)), 'c': [(), (2.5,)]}", { a: [1, ["b", null]], c: [[], [2.5]] }],
      ["import collections\ncollections.namedtuple('P', 'x y')(1, (2,))", "P(x=1, y=(2,))", [1, [2]]],
      ["class T(tuple):\n    def __iter__(self): 1 / 0\n    def __len__(self): 1 / 0\nT((1, 2))", "(1, 2)"],
      ["(1, {2})", "(1, {2})"],
      ["{(1, 2): 3}", "{(1, 2): 3}"],
      ["[1, 2.5, 'ä', None, True, {'a': []}]", "[1, 2.5, 'ä', None, True, {'a': []}]", [1, 2.5, "ä", null, true, { a: [] }]],
      ["{1: 2}", "{1: 2}"],
      ["float('nan')", "nan"],
      ["2 ** 60", "1152921504606846976"],
      ["[(1,)]", "[(1,)]", [[1]]],
      ["t = ([],); t[0].append(t); t", "([(...)],)"],
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
      ['import path from "node:path"\npath.basename("/a/b")', "'b'", "b"],
      ["import { basename as name, default as whole } from 'node:path'; [name('/c/d'), whole.sep]", "[ 'd', '/' ]", ["d", "/"]],
      ["import*as all from 'node:path'\nimport 'node:fs'\nall.dirname('/e/f')", "'/e'", "/e"],
      ["used()\nfunction used() { return join('a', 'b') }\nimport { join } from 'node:path'", "'a/b'", "a/b"],
      ['import { z } from "npm:zod@4"\ntypeof z.string', "'function'", "function"],
      ["const text = `\nimport a from 'b'`; /import 'c'/.test(text)", "false", false],
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
      [
        "import { nothing } from 'node:path'",
        "SyntaxError",
        /^The requested module 'node:path' does not provide an export named 'nothing'$/,
        /./,
      ],
      ["import { sep }\n  from 'node:path'\nmissing", "ReferenceError", /missing/, /eval-\d+:3:1/],
      ["JSON.parse('{')", "SyntaxError", /JSON/, /at eval-\d+:1:6$/],
      ["import a from 'no-such-package'", "Error", /Cannot find module 'no-such-package'/, /./],
      ["process.exit(3)", "SystemExit", /^3$/, /SystemExit: 3/],
      ["Promise.reject(new Error('rejected'))", "Error", /^rejected$/, /Error: rejected/],
    ],
    busy: ["while (true);", "await new Promise((done) => setTimeout(done, 60000))", "new Promise(() => {})"],
  },
];

for (const language of languages) {
  describe(`kernel ${language.name}`, { timeout: patience() }, () => {
    const kernel = new KernelProcess(language.name);
    after(() => kernel.process.kill("SIGKILL"));

    test("reports ready", async () => {
      let ready = await kernel.next();
      if (language.name === "python") {
        assert.equal(ready.event, "generators");
        ready = await kernel.next();
      }
      assert.deepEqual([ready.event, ready.language], ["ready", language.name]);
    });

    test("keeps state, and returns values as text and, where that is exact, as JSON", async () => {
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

    test("has written all output before the result", async () => {
      kernel.seen.length = 0;
      const { event } = await kernel.eval(language.print);
      assert.equal(event, "result");
      await until(() => kernel.seen.join("").includes("last"));
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
        // an interrupt before the code runs has no effect
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

    test("many SIGINTs do not end it", async () => {
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

    test("truncates a long error", async () => {
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

describe("generators of the python kernel", { timeout: patience() }, () => {
  test("are at the reported addresses: bytes written there are their next output", async () => {
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

  test("numpy, imported after a fork in the same eval, is reseeded, and only then", async () => {
    const dir = await mkdtemp(join(tmpdir(), "forkd-kernel-"));
    const kernel = new KernelProcess("python");
    try {
      const { regions = [] } = await kernel.next();
      await kernel.next();
      await using memory = await open(`/proc/${kernel.process.pid}/mem`, "r+");
      const [, address = 0, length = 0] = regions.find(([name]) => name === "generation") ?? [];
      // stands in for the module: the test checks when it is seeded
      await kernel.eval("import os, sys, types, time\nseeds = []\nfake = types.SimpleNamespace(seed=seeds.append)");
      const forked = join(dir, "forked");
      const wait = `while not os.path.exists(${JSON.stringify(forked)}): time.sleep(0.005)`;
      kernel.start(`sys.modules['numpy.random.mtrand'] = fake\nprint('imported')\n${wait}`);
      await until(() => kernel.seen.some((text) => text.includes("imported")));
      await memory.write(Buffer.alloc(length, 7), 0, length, address);
      await writeFile(forked, "");
      assert.equal((await kernel.next()).event, "generators");
      assert.equal((await kernel.next()).event, "result");
      assert.equal((await kernel.eval("len(seeds), len(seeds[0])")).text, "(1, 8)");
    } finally {
      await rm(dir, { recursive: true });
      kernel.process.kill("SIGKILL");
    }
  });

  test("that are objects are seeded before the first code of a fork, wherever the warm-up stores them", async () => {
    const kernel = new KernelProcess("python");
    try {
      const { regions = [] } = await kernel.next();
      await kernel.next();
      await using memory = await open(`/proc/${kernel.process.pid}/mem`, "r+");
      const [, address = 0, length = 0] = regions.find(([name]) => name === "generation") ?? [];
      // stands in for torch, whose generators have this method
      const torch = [
        "class Generator:",
        "    def __init__(self): self.seeds = 0",
        "    def seed(self): self.seeds += 1",
        "sys.modules['torch'] = types.SimpleNamespace(Generator=Generator, default_generator=Generator())",
      ];
      const kept = "class Keeper: pass\nkeeper = Keeper()\nkeeper.own = {'random': random.Random(1), 'torch': Generator()}";
      assert.equal((await kernel.eval(["import random, sys, types", ...torch, kept].join("\n"), { warm: true })).event, "result");
      await kernel.eval(
        "variable = random.Random(1)\nclass Odd(random.Random):\n    __class__ = property(lambda self: 1 / 0)\nodd = Odd(1)",
      );
      const drawn =
        "[g.random() for g in (keeper.own['random'], variable, odd)] + [keeper.own['torch'].seeds, sys.modules['torch'].default_generator.seeds]";
      const before = (await kernel.eval(drawn)).json as number[];
      assert.deepEqual(before, [before[0], before[0], before[0], 0, 0]);
      await memory.write(Buffer.alloc(length, 7), 0, length, address);
      const after = (await kernel.eval(drawn)).json as number[];
      assert.equal(new Set([...before.slice(0, 1), ...after.slice(0, 3)]).size, 4, JSON.stringify(after));
      assert.deepEqual(after.slice(3), [1, 1]);
      assert.deepEqual(((await kernel.eval(drawn)).json as number[]).slice(3), [1, 1]);
    } finally {
      kernel.process.kill("SIGKILL");
    }
  });

  test("values that Python's library keeps are renewed before the first code of a fork, and only then", async () => {
    const kernel = new KernelProcess("python");
    try {
      const { regions = [] } = await kernel.next();
      await kernel.next();
      await using memory = await open(`/proc/${kernel.process.pid}/mem`, "r+");
      const [, address = 0, length = 0] = regions.find(([name]) => name === "generation") ?? [];
      const fork = async (): Promise<unknown> => memory.write(randomBytes(length), 0, length, address);
      const kept =
        "[uuid.getnode(), uuid.uuid1().node, id(tempfile._get_candidate_names()), multiprocessing.current_process().authkey.hex()]";
      await kernel.eval("import multiprocessing, tempfile, time, uuid");
      const [node, node1, names, key] = (await kernel.eval(`names = tempfile._get_candidate_names()\n${kept}`)).json as unknown[];
      assert.deepEqual((await kernel.eval(kept)).json, [node, node1, names, key]);
      await fork();
      const [newNode, newNode1, newNames, newKey] = (await kernel.eval(kept)).json as unknown[];
      assert.notEqual(newNode, node);
      assert.equal(newNode1, newNode);
      assert.notEqual(newNames, names);
      assert.notEqual(newKey, key);
      // a process that was started with the key still needs it
      const started = "process = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))\nprocess.start()";
      assert.equal((await kernel.eval(started)).event, "result");
      await fork();
      assert.equal((await kernel.eval("multiprocessing.current_process().authkey.hex()")).json, newKey);
      await kernel.eval("process.kill()\nprocess.join()");
      await fork();
      assert.notEqual((await kernel.eval("multiprocessing.current_process().authkey.hex()")).json, newKey);
    } finally {
      kernel.process.kill("SIGKILL");
    }
  });

  test("numpy is not seeded without a fork", async () => {
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

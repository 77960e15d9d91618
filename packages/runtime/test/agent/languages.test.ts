// The kernels of TypeScript, R and Java with the host's interpreters, where they are installed.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { KernelProcess, type Message } from "./kernel-process.ts";
import { COMMANDS, MISSING_STATUS, type Language } from "../../src/agent/kernel/language.ts";

type Sample = {
  language: Language;
  /** a program that the host must have */
  needs: string | null;
  values: [code: string, text: string | null, json?: unknown][];
  print: [code: string, out: string];
  errors: [code: string, type: string, message: RegExp][];
  busy: string;
  variable: string;
  random: string;
  generators: RegExp;
};

const SAMPLES: Sample[] = [
  {
    language: "typescript",
    needs: null,
    values: [
      ["const x: number = 20", null],
      ["interface Point { n: number }\nconst double = (point: Point): number => point.n * 2", null],
      ["double({ n: x }) + 2", "42", 42],
      ["enum Colour { Red = 3 }\nColour.Red", "3", 3],
      ["await Promise.resolve<string>('late')", "'late'", "late"],
      ["x as unknown as string", "20", 20],
      ["", null],
    ],
    print: ["for (const i of [0, 1] as number[]) console.log('line', i)", "line 0\nline 1\n"],
    errors: [
      ["null.x", "TypeError", /null/],
      ["let y: = 3", "SyntaxError", /./],
    ],
    busy: "for (;;);",
    variable: "process.env.OWN ?? 'none'",
    random: "Math.random()",
    generators: /^Math.random crypto$/,
  },
  {
    language: "r",
    needs: "Rscript",
    values: [
      ["x <- 20", null],
      ["double <- function(n) 2 * n", null],
      ["double(x) + 2", "[1] 42", 42],
      ["c(1.5, NA)", "[1] 1.5  NA"],
      ["'grüße'", '[1] "grüße"', "grüße"],
      ["invisible(3)", null],
      ["NULL", null],
      ["summary(c(1, 2, 3))[['Mean']]", "[1] 2", 2],
      ["", null],
    ],
    print: ["for (i in 0:1) cat('line', i, '\\n')\n1 + 1\ninvisible()", "line 0 \nline 1 \n[1] 2\n"],
    errors: [
      ["stop('no')", "simpleError", /^no$/],
      ["undefined_name", "simpleError", /not found/],
      ["f <- function( {", "simpleError", /unexpected/],
      ["quit(status = 3)", "SystemExit", /quit/],
    ],
    busy: "repeat {}",
    variable: "Sys.getenv('OWN', 'none')",
    random: "runif(1)",
    generators: /^R$/,
  },
  {
    language: "java",
    needs: "javac",
    values: [
      ["int x = 20;", null],
      ["int twice(int n) {\n  return 2 * n;\n}", null],
      ["twice(x) + 2", "42"],
      ["List.of(1, 2).stream().map(n -> n * 2).toList()", "[2, 4]"],
      ["x = 21", null],
      ["x", "21"],
      ["", null],
    ],
    print: ['for (int i = 0; i < 2; i++) System.out.println("line " + i);', "line 0\nline 1\n"],
    errors: [
      ['throw new IllegalStateException("no");', "java.lang.IllegalStateException", /^no$/],
      ["missing()", "CompilationException", /cannot find symbol/],
      ["1 +", "CompilationException", /./],
      ["void g() { h(); }\ng();", "UnresolvedReferenceException", /h\(\)/],
    ],
    busy: "while (true) { }",
    variable: 'System.getProperty("OWN", "none")',
    random: "Math.random()",
    generators: /^Math.random java.util.Random ThreadLocalRandom$/,
  },
];

for (const sample of SAMPLES) {
  const { language, needs } = sample;
  const isMissing = needs !== null && spawnSync("sh", ["-c", `command -v ${needs}`]).status !== 0;
  describe(language, { skip: isMissing ? `this machine has no ${needs}` : false }, () => {
    let kernel: KernelProcess;
    before(async () => {
      kernel = new KernelProcess(language);
      assert.equal((await kernel.ready()).language, language);
    });
    after(async () => kernel.close());

    test("values and state", async () => {
      for (const [code, text, json] of sample.values) {
        const message = await kernel.eval(code);
        assert.deepEqual([message.event, message.text, message.json], ["result", text, json], `${code}: ${JSON.stringify(message)}`);
      }
    });

    test("printed output is complete, and is not the value", async () => {
      const [code, out] = sample.print;
      kernel.printed("out");
      const { event, text } = await kernel.eval(code);
      assert.deepEqual([event, text], ["result", null]);
      // output takes another path than messages
      let printed = "";
      while (printed.length < out.length) {
        printed += kernel.printed("out");
        await sleep(5);
      }
      assert.equal(printed, out);
    });

    test("errors leave it usable", async () => {
      for (const [code, type, message] of sample.errors) {
        const failed = await kernel.eval(code);
        assert.deepEqual([failed.event, failed.type], ["error", type], JSON.stringify(failed));
        assert.match(failed.message ?? "", message);
        assert.notEqual(failed.traceback, "");
      }
    });

    test("an interrupt ends the code that runs, and not the interpreter", async () => {
      // at its arrival no code may run, or the next code already
      kernel.interrupt();
      while ((await kernel.eval(sample.variable)).event !== "result");
      kernel.start(sample.busy);
      const answer: Promise<Message> = kernel.next();
      const interrupting = setInterval(() => kernel.interrupt(), 250);
      assert.equal((await answer).type, "KeyboardInterrupt");
      clearInterval(interrupting);
      assert.equal((await kernel.eval(sample.variable)).event, "result");
    });

    test("environment variables of one run, and of all later runs", async () => {
      const value = async (env?: Record<string, string>): Promise<string> =>
        (await kernel.eval(sample.variable, env ? { env } : {})).text ?? "";
      assert.match(await value(), /none/);
      assert.match(await value({ OWN: "mine" }), /mine/);
      assert.match(await value(), /none/);
      kernel.send({ op: "environment", id: 900_000, env: { OWN: "all" } });
      assert.match(await value(), /all/);
    });

    test("a seed determines the next random numbers, and ids of any size are returned", async () => {
      const after = async (seed: string): Promise<string> => {
        const id = 2 ** 52 + 1;
        const { event, generators = [], id: answered } = await kernel.reseed(id, seed);
        assert.deepEqual([event, answered], ["reseeded", id]);
        assert.match(generators.join(" "), sample.generators);
        return (await kernel.eval(sample.random)).text ?? "";
      };
      const [first, again, other] = [await after("ab".repeat(32)), await after("ab".repeat(32)), await after("cd".repeat(32))];
      assert.equal(first, again);
      assert.notEqual(first, other);
    });

    test("a truncated line is not a message, and the end of the channel ends the kernel", async () => {
      kernel.control.write('{"op":"eval","id":7,"co\n\n[1]\nnonsense\n');
      assert.equal((await kernel.eval(sample.variable)).event, "result");
      assert.equal(await kernel.close(), 0);
    });
  });
}

test("a missing language is reported by the kernel's exit status, and stderr names the missing program", () => {
  for (const language of ["r", "java"] as const) {
    const [, ...args] = COMMANDS[language];
    const { status, stderr } = spawnSync("/bin/bash", args, { env: { PATH: "/nowhere" }, encoding: "utf8" });
    assert.equal(status, MISSING_STATUS);
    assert.match(stderr, /^it has no (R|Java) \(Debian's package /);
  }
});

// What the kernels show beside text, and the shell as a kernel; under the host's own interpreters.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { KernelProcess, type Message } from "./kernel-process.ts";

const MIB = 1024 * 1024;

function shownIn(messages: Message[]): (Record<string, unknown> | undefined)[] {
  return messages.map(({ data }) => data);
}

describe("displays of python", { timeout: 60_000 }, () => {
  const kernel = new KernelProcess("python");
  before(async () => kernel.ready());
  after(() => kernel.process.kill("SIGKILL"));

  test("a value of plain types has none", async () => {
    for (const code of ["1", "'a'", "[1]", "{'a': 1}", "None", "print", "int"])
      assert.equal((await kernel.eval(code)).data, undefined, code);
  });

  test("a value shows what its class has methods for", async () => {
    await kernel.eval(
      "class Shown:\n    def _repr_html_(self): return '<b>'\n    def _repr_png_(self): return b'\\x89PNG'\n" +
        "    def _repr_latex_(self): return ('$x$', {})\n    def _repr_json_(self): return {'a': (1, float('nan'))}\n    def __repr__(self): return 'S'",
    );
    const { text, data } = await kernel.eval("Shown()");
    const png = Buffer.from("\x89PNG", "latin1").toString("base64");
    assert.equal(text, "S");
    assert.deepEqual(data, { "text/html": "<b>", "image/png": png, "text/latex": "$x$", "application/json": { a: [1, null] } });
    assert.equal((await kernel.eval("Shown")).data, undefined, "a class is no value of it");
  });

  test("a bundle of its own goes first, and one that shows itself has no other", async () => {
    await kernel.eval(
      "class Own(Shown):\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': '<i>', 'a/b': 7}",
    );
    assert.deepEqual((await kernel.eval("Own()")).data?.["text/html"], "<i>");
    await kernel.eval("class Itself:\n    def _ipython_display_(self): display('itself')");
    const [display, end] = await kernel.evalAll("Itself()");
    assert.deepEqual([display?.event, display?.data], ["display", { "text/plain": "'itself'" }]);
    assert.equal(end?.data, undefined);
  });

  test("display() comes when it is called, between what is printed", async () => {
    kernel.seen.length = 0;
    const messages = await kernel.evalAll("print('one')\ndisplay(Shown(), 2)\nprint('two')");
    assert.deepEqual(
      messages.map(({ event, data }) => [event, data?.["text/plain"]]),
      [
        ["display", "S"],
        ["display", "2"],
        ["result", undefined],
      ],
    );
    await until(() => kernel.seen.some((entry) => entry.includes("two")));
  });

  test("a form that fails is left out and told on stderr", async () => {
    await kernel.eval("class Bad:\n    def _repr_html_(self): 1 / 0\n    def _repr_svg_(self): return '<svg/>'");
    kernel.seen.length = 0;
    assert.deepEqual((await kernel.eval("Bad()")).data, { "image/svg+xml": "<svg/>" });
    await until(() => kernel.seen.join("").includes("ZeroDivisionError"));
  });

  test("what is too large is named instead", async () => {
    const { data, omitted } = await kernel.eval(`class Big(Shown):\n    def _repr_html_(self): return 'x' * ${9 * MIB}\nBig()`);
    assert.deepEqual(omitted, { "text/html": 9 * MIB + 2 });
    assert.equal(data?.["text/latex"], "$x$");
  });

  test("code for notebooks finds IPython's display", async () => {
    const code =
      "from IPython.display import HTML, Markdown, Image, clear_output, display\nclear_output()\ndisplay(HTML('<p>'))\nMarkdown('*m*')";
    const [shown, end] = shownIn(await kernel.evalAll(code));
    assert.equal(shown?.["text/html"], "<p>");
    assert.deepEqual(end, { "text/markdown": "*m*" });
    assert.equal((await kernel.eval("import IPython; IPython.get_ipython()")).text, null);
    assert.ok((await kernel.eval("Image(data=b'\\xff\\xd8\\xff')")).data?.["image/jpeg"]);
  });

  test("lines that only notebooks know are run", async () => {
    kernel.seen.length = 0;
    const { text, event } = await kernel.eval(
      "n = 2\nfor i in range(n):\n    !echo line \\\n  two\nfound = !printf 'a\\nb\\n'\n%matplotlib inline\nfound",
    );
    assert.deepEqual([event, text], ["result", "['a', 'b']"]);
    await until(() => kernel.seen.join("").replaceAll("out:", "").includes("line two\nline two\n"));
    assert.equal((await kernel.eval("%env FORKD_MAGIC=1\n%cd /\nimport os; (os.environ['FORKD_MAGIC'], os.getcwd())")).text, "('1', '/')");
    kernel.seen.length = 0;
    assert.equal((await kernel.eval("%%bash\nfor i in 1 2; do echo $i; done")).event, "result");
    await until(() => kernel.seen.join("").replaceAll("out:", "").includes("1\n2\n"));
    assert.equal((await kernel.eval("%nothing")).type, "NameError");
    const wrong = await kernel.eval("x = \n!ls");
    assert.deepEqual([wrong.type, (await kernel.eval("def f(:\n  pass % 2")).type], ["SyntaxError", "SyntaxError"]);
  });

  test("variables of the environment last as long as their code, and evals are counted", async () => {
    const code = "import os; os.environ.get('FORKD_ONLY'), os.environ['HOME']";
    const before = (await kernel.eval("1")).count ?? 0;
    assert.equal((await kernel.eval(code, { env: { FORKD_ONLY: "x", HOME: "/h" } })).text, "('x', '/h')");
    assert.equal((await kernel.eval(code, { warm: true })).text, `(None, '${process.env["HOME"]}')`);
    assert.equal((await kernel.eval("1 / 0")).count, before + 2, "a warm-up does not count, an error does");
  });
});

test("every kernel takes an environment", { timeout: 60_000 }, async () => {
  const codes = { python: "import os; os.environ['A']", node: "process.env.A", bash: "[[ $A == \"b 'c' %d\" ]]" } as const;
  for (const [language, code] of Object.entries(codes) as ["python" | "node" | "bash", string][]) {
    const kernel = new KernelProcess(language);
    try {
      await kernel.ready();
      kernel.send({ op: "environment", id: 7, env: { A: "b 'c' %d" } });
      const { json, status } = await kernel.eval(code);
      assert.ok(json === "b 'c' %d" || status === 0, language);
    } finally {
      kernel.process.kill("SIGKILL");
    }
  }
});

describe("displays of node", { timeout: 60_000 }, () => {
  const kernel = new KernelProcess("node");
  before(async () => kernel.ready());
  after(() => kernel.process.kill("SIGKILL"));

  test("a value shows what it has methods for", async () => {
    await kernel.eval("class Shown { _toHtml() { return '<b>' } _toPng() { return Buffer.from('png') } }");
    const { data } = await kernel.eval("new Shown()");
    assert.deepEqual(data, { "text/html": "<b>", "image/png": "cG5n" });
    assert.equal((await kernel.eval("new Map()")).data, undefined);
  });

  test("display() comes when it is called", async () => {
    const messages = await kernel.evalAll("display(new Shown(), 2); await 1; display('late'); 3");
    assert.deepEqual(
      messages.map(({ data, text }) => data?.["text/plain"] ?? text),
      ["Shown {}", "2", "'late'", "3"],
    );
  });

  test("a form that fails shows nothing", async () => {
    const { event, data } = await kernel.eval("({ _toHtml() { throw new Error('no') } })");
    assert.deepEqual([event, data], ["result", undefined]);
  });

  test("variables of the environment last as long as their code", async () => {
    assert.equal((await kernel.eval("process.env.FORKD_ONLY", { env: { FORKD_ONLY: "x" } })).json, "x");
    assert.equal((await kernel.eval("process.env.FORKD_ONLY")).text, null);
  });
});

describe("bash as a kernel", { timeout: 60_000 }, () => {
  const kernel = new KernelProcess("bash");
  before(async () => assert.equal((await kernel.ready()).language, "bash"));
  after(() => kernel.process.kill("SIGKILL"));

  /** What code printed and its status */
  async function run(code: string, env?: Record<string, string>): Promise<[string, number | undefined]> {
    kernel.seen.length = 0;
    const { event, status } = await kernel.eval(`${code}\n{ s=$?; echo end-; (exit $s); }`, env ? { env } : {});
    assert.equal(event, "status");
    await until(() => kernel.seen.some((entry) => entry.includes("end-\n")));
    return [kernel.printed("out").replace("end-\n", ""), status];
  }

  test("keeps variables, functions, aliases and the folder", async () => {
    assert.deepEqual(await run("x=5; f() { echo f $1; }; alias say='echo said'; cd /usr; declare -A m=([k]=v)"), ["", 0]);
    assert.deepEqual(await run("echo $x ${m[k]} $PWD; f 1; say it"), ["5 v /usr\nf 1\nsaid it\n", 0]);
  });

  test("takes every character, and several lines", async () => {
    assert.deepEqual(await run("echo 'ä % \\ \" $x' \"'\"\ncat <<E\nhere $x\nE"), ["ä % \\ \" $x '\nhere 5\n", 0]);
  });

  test("tells the status of what failed, also of what is no shell code", async () => {
    assert.deepEqual(await run("(exit 7)"), ["", 7]);
    assert.equal((await kernel.eval("if; then")).status, 2);
    assert.equal((await kernel.eval("")).status, 0);
  });

  test("its commands read nothing, and have no hold of the control channel", async () => {
    // the streams of the shell itself are sockets here
    assert.deepEqual(await run("cat; read -r line; echo $?; (ls -l /proc/self/fd 2>/dev/null; true) | grep -c socket"), ["1\n0\n", 1]);
  });

  test("an interrupt ends the code and nothing else", async () => {
    for (const code of ["sleep 60", "while :; do :; done", "g() { while :; do sleep 60; done; }; g"]) {
      kernel.seen.length = 0;
      const id = kernel.start(`echo begun; ${code}; echo not`);
      await until(() => kernel.seen.some((entry) => entry.includes("begun")));
      let ended: Message | undefined;
      const end = kernel.next().then((message) => (ended = message));
      await until(() => {
        if (!ended) kernel.interrupt();
        return ended !== undefined;
      });
      assert.deepEqual([(await end).id, (await end).status], [id, 130], code);
      assert.doesNotMatch(kernel.printed("out"), /not/);
    }
    assert.deepEqual(await run("echo $x"), ["5\n", 0]);
  });

  test("half a line runs nothing", async () => {
    kernel.control.write("__forkd_take 99 1 echo%20half\n\n__forkd_ta\n");
    assert.deepEqual(await run("echo whole"), ["whole\n", 0]);
  });

  test("variables of the environment last as long as their code", async () => {
    await run("OLD=1");
    assert.deepEqual(await run("sh -c 'echo $NEW $OLD'", { NEW: "a 'b'\nc", OLD: "2" }), ["a b c 2\n".replace("b", "'b'"), 0]);
    assert.deepEqual(await run("echo [$NEW] $OLD"), ["[] 1\n", 0]);
  });

  test("reseed makes RANDOM repeat", async () => {
    const draw = async (seed: string): Promise<string> => {
      assert.deepEqual((await kernel.reseed(5, seed)).generators, ["RANDOM"]);
      return (await run("echo $RANDOM $RANDOM"))[0];
    };
    const first = await draw("ab".repeat(32));
    assert.equal(await draw("ab".repeat(32)), first);
    assert.notEqual(await draw("cd".repeat(32)), first);
  });

  test("exit, set -e and return end the code, not the shell", async () => {
    for (const [code, status] of [
      ["exit 9; echo not", 9],
      ["f() { exit 4; echo not; }; f; echo not", 4],
      ["set -euo pipefail; (exit 6); echo not", 6],
      ["set -e; h() { (exit 8); echo not; }; h; echo not", 8],
      ["return 5; echo not", 5],
    ] as const) {
      kernel.seen.length = 0;
      assert.equal((await kernel.eval(code)).status, status, code);
      assert.deepEqual(await run("false; (exit 3); echo $?; set +u"), ["3\n", 0]);
    }
  });
});

// Displays of the kernels, and bash as a kernel; with the host's interpreters.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { KernelProcess, type Message } from "./kernel-process.ts";

const MIB = 1024 * 1024;

function shownIn(messages: Message[]): (Record<string, unknown> | undefined)[] {
  return messages.map(({ data }) => data);
}

describe("displays of python", { timeout: patience() }, () => {
  const kernel = new KernelProcess("python");
  before(async () => kernel.ready());
  after(() => kernel.process.kill("SIGKILL"));

  test("a value of a plain type has no display", async () => {
    for (const code of ["1", "'a'", "[1]", "{'a': 1}", "None", "print", "int"])
      assert.equal((await kernel.eval(code)).data, undefined, code);
  });

  test("a value is displayed by the methods of its class", async () => {
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

  test("a value's own bundle takes precedence, and a value that displays itself has no other display", async () => {
    await kernel.eval(
      "class Own(Shown):\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': '<i>', 'a/b': 7}",
    );
    assert.deepEqual((await kernel.eval("Own()")).data?.["text/html"], "<i>");
    await kernel.eval("class Itself:\n    def _ipython_display_(self): display('itself')");
    const [display, end] = await kernel.evalAll("Itself()");
    assert.deepEqual([display?.event, display?.data], ["display", { "text/plain": "'itself'" }]);
    assert.equal(end?.data, undefined);
  });

  test("display() keeps its position in the output", async () => {
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

  test("a printed line is one piece of output", async () => {
    for (const code of ["print('hello')", "print('hello', 'world', 1)", "import sys\nprint('hello', file=sys.stderr)"]) {
      kernel.seen.length = 0;
      await kernel.eval(code);
      await until(() => kernel.seen.some((entry) => entry.endsWith("\n")));
      assert.equal(kernel.seen.filter((entry) => /^(out|err):/.test(entry)).length, 1, JSON.stringify(kernel.seen));
    }
    kernel.seen.length = 0;
    await kernel.eval("print('no end', end='')");
    await until(() => kernel.seen.includes("out:no end"));
  });

  test("an image that is saved under a name, shown, or the last value is displayed", async () => {
    const folder = await mkdtemp(join(tmpdir(), "forkd-kernel-"));
    try {
      // the part of Pillow that this test uses
      await mkdir(join(folder, "PIL"));
      await writeFile(join(folder, "PIL", "__init__.py"), "");
      const image =
        "class Image:\n    def save(self, fp, format=None, **params):\n        'Saves'\n        if fp == 'bad': raise ValueError(fp)\n" +
        "    def show(self, title=None): 1 / 0\n    def _repr_png_(self): return b'png'\n    def __repr__(self): return '<image>'";
      await writeFile(join(folder, "PIL", "Image.py"), image);
      await writeFile(join(folder, "matplotlib.py"), "def save(image): image.save('figure.png')");
      await kernel.eval(
        `import sys, io, pathlib\nsys.path.insert(0, ${JSON.stringify(folder)})\nfrom PIL import Image\nimage = Image.Image()`,
      );
      const png = { "image/png": Buffer.from("png").toString("base64") };
      const shown = { ...png, "text/plain": "<image>" };
      for (const code of [
        "image.save('a.png')",
        "image.save(pathlib.Path('a.png'), 'PNG')",
        "image.save(fp='a.png', quality=3)",
        "image.show()",
      ])
        assert.deepEqual(shownIn(await kernel.evalAll(code)), [shown, undefined], code);
      assert.deepEqual(shownIn(await kernel.evalAll("image")), [png]);
      for (const code of ["image.save(io.BytesIO(), 'PNG')", "import matplotlib; matplotlib.save(image)", "image.save.__doc__ == 'Saves'"])
        assert.deepEqual(shownIn(await kernel.evalAll(code)), [undefined], code);
      assert.deepEqual(
        (await kernel.evalAll("image.save('bad')")).map(({ event }) => event),
        ["error"],
      );
      await kernel.eval("sys.path.pop(0); del sys.modules['PIL'], sys.modules['PIL.Image'], sys.modules['matplotlib']");
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test("a representation that fails is left out, with a message on stderr", async () => {
    await kernel.eval("class Bad:\n    def _repr_html_(self): 1 / 0\n    def _repr_svg_(self): return '<svg/>'");
    kernel.seen.length = 0;
    assert.deepEqual((await kernel.eval("Bad()")).data, { "image/svg+xml": "<svg/>" });
    await until(() => kernel.seen.join("").includes("ZeroDivisionError"));
  });

  test("a display that is too large is replaced by its size", async () => {
    const { data, omitted } = await kernel.eval(`class Big(Shown):\n    def _repr_html_(self): return 'x' * ${9 * MIB}\nBig()`);
    assert.deepEqual(omitted, { "text/html": 9 * MIB + 2 });
    assert.equal(data?.["text/latex"], "$x$");
  });

  test("a display with too many values is replaced by its size, and text is not counted", async () => {
    const shown = `class Many:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'application/json': [0] * 600_000, 'text/html': '[,' * 600_000}\nMany()`;
    const { data, omitted } = await kernel.eval(shown);
    assert.deepEqual(Object.keys(omitted ?? {}), ["application/json"]);
    assert.equal((data?.["text/html"] as string | undefined)?.length, 1_200_000);
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

  test("notebook commands are run", async () => {
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

  test("environment variables are set for their code only, and evals are counted", async () => {
    const code = "import os; os.environ.get('FORKD_ONLY'), os.environ['HOME']";
    const before = (await kernel.eval("1")).count ?? 0;
    assert.equal((await kernel.eval(code, { env: { FORKD_ONLY: "x", HOME: "/h" } })).text, "('x', '/h')");
    assert.equal((await kernel.eval(code, { warm: true })).text, `(None, '${process.env["HOME"]}')`);
    assert.equal((await kernel.eval("1 / 0")).count, before + 2, "a warm-up does not count, an error does");
  });
});

test("every kernel takes an environment", { timeout: patience() }, async () => {
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

describe("displays of node", { timeout: patience() }, () => {
  const kernel = new KernelProcess("node");
  before(async () => kernel.ready());
  after(() => kernel.process.kill("SIGKILL"));

  test("a value is displayed by its methods", async () => {
    await kernel.eval("class Shown { _toHtml() { return '<b>' } _toPng() { return Buffer.from('png') } }");
    const { data } = await kernel.eval("new Shown()");
    assert.deepEqual(data, { "text/html": "<b>", "image/png": "cG5n" });
    assert.equal((await kernel.eval("new Map()")).data, undefined);
  });

  test("display() is delivered at once", async () => {
    const messages = await kernel.evalAll("display(new Shown(), 2); await 1; display('late'); 3");
    assert.deepEqual(
      messages.map(({ data, text }) => data?.["text/plain"] ?? text),
      ["Shown {}", "2", "'late'", "3"],
    );
  });

  test("a display with too many values is replaced by its size", async () => {
    const { data, omitted } = await kernel.eval(
      "({ _toMime() { return { 'application/json': Array(600_000).fill(0) } }, _toHtml() { return '[,'.repeat(600_000) } })",
    );
    assert.deepEqual(Object.keys(omitted ?? {}), ["application/json"]);
    assert.equal((data?.["text/html"] as string | undefined)?.length, 1_200_000);
  });

  test("a representation that fails is left out", async () => {
    const { event, data } = await kernel.eval("({ _toHtml() { throw new Error('no') } })");
    assert.deepEqual([event, data], ["result", undefined]);
  });

  test("environment variables are set for their code only", async () => {
    assert.equal((await kernel.eval("process.env.FORKD_ONLY", { env: { FORKD_ONLY: "x" } })).json, "x");
    assert.equal((await kernel.eval("process.env.FORKD_ONLY")).text, null);
  });
});

describe("bash as a kernel", { timeout: patience() }, () => {
  const kernel = new KernelProcess("bash");
  before(async () => assert.equal((await kernel.ready()).language, "bash"));
  after(() => kernel.process.kill("SIGKILL"));

  /** Output and status of code */
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

  test("reports the status of failed commands and of syntax errors", async () => {
    assert.deepEqual(await run("(exit 7)"), ["", 7]);
    assert.equal((await kernel.eval("if; then")).status, 2);
    assert.equal((await kernel.eval("")).status, 0);
  });

  test("its commands have an empty stdin, and no access to the control channel", async () => {
    // here the shell's own streams are sockets
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

  test("an incomplete line is not run", async () => {
    kernel.control.write("__forkd_take 99 1 echo%20half\n\n__forkd_ta\n");
    assert.deepEqual(await run("echo whole"), ["whole\n", 0]);
  });

  test("environment variables are set for their code only", async () => {
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

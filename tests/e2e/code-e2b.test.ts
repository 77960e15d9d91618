// E2B's code interpreter: unmodified packages from npm and PyPI, in several versions.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import * as newest from "@e2b/code-interpreter";
import * as older from "@e2b/code-interpreter-2.7";
import { newestUnlessAll } from "../helpers/all.ts";
import { makeCodeTemplate } from "../helpers/code-template.ts";
import { E2bDaemon, forgetClocks, PATIENT } from "../helpers/e2b.ts";
import { pythonWith } from "../helpers/e2b-python.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

type Sdk = typeof newest;
type Sandbox = newest.Sandbox;

const run = promisify(execFile);
const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47]);
/** Version of the code interpreter → version of the e2b package of the same time */
const PYTHON_VERSIONS = newestUnlessAll({ "2.11.5": "2.63.0", "2.10.5": "2.55.1", "2.9.1": "2.45.1" });
const SDKS = newestUnlessAll<Sdk>({ "2.8": newest, "2.7": older as unknown as Sdk });

let e2b: E2bDaemon;

before(async () => {
  forgetClocks();
  e2b = await E2bDaemon.start(makeCodeTemplate);
  Object.assign(process.env, e2b.env);
});

after(async () => {
  for (const name of Object.keys(e2b.env)) delete process.env[name];
  await e2b[Symbol.asyncDispose]();
});

for (const [version, { Sandbox, NotFoundError, TimeoutError }] of Object.entries(SDKS)) {
  describe(`npm ${version}`, () => {
    let sandbox: Sandbox;
    before(async () => {
      sandbox = await Sandbox.create({ ...PATIENT, envs: { COLOUR: "blue" } });
    });
    after(async () => sandbox.kill());

    test("values, state, output, errors and the count of executions", async () => {
      const first = await sandbox.runCode("x = 1");
      assert.deepEqual([first.text, first.results, first.error, first.executionCount], [undefined, [], undefined, 1]);
      const second = await sandbox.runCode("x += 1; print('grüße 🎉'); x");
      assert.deepEqual([second.text, second.logs.stdout.join(""), second.executionCount], ["2", "grüße 🎉\n", 2]);
      assert.equal((await sandbox.runCode("'text'")).text, "text");
      assert.equal((await sandbox.runCode("\n    y = 20\n    if y:\n        y += 1\n    y")).text, "21");
      const { error, logs } = await sandbox.runCode("import sys; print('e', file=sys.stderr)\n1 / 0");
      assert.deepEqual([error?.name, error?.value], ["ZeroDivisionError", "division by zero"]);
      assert.match(error?.traceback ?? "", /line 2/);
      assert.equal(logs.stderr.join(""), "e\n");
    });

    test("output and results are delivered while the code runs", async () => {
      const seen: string[] = [];
      const running = sandbox.runCode(
        "import os, time\nprint('begun')\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('on')",
        {
          onStdout: ({ line }) => void seen.push(line),
        },
      );
      await until(() => seen.join("").includes("begun\n"));
      await sandbox.files.write("/tmp/go", "");
      await running;
      assert.equal(seen.join(""), "begun\non\n");
      await sandbox.files.remove("/tmp/go");
    });

    test("a figure with its numbers, a table with its columns", async () => {
      const figure = await sandbox.runCode(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label='Data')\nplt.xlabel('Time (s)')\nplt.title('Graph')\nplt.show()",
        PATIENT,
      );
      const [shown] = figure.results;
      assert.deepEqual(Buffer.from(shown?.png ?? "", "base64").subarray(0, 4), PNG);
      const chart = shown?.chart as newest.LineChart | undefined;
      assert.deepEqual([chart?.type, chart?.title, chart?.x_label, chart?.x_unit], ["line", "Graph", "Time (s)", "s"]);
      assert.deepEqual(chart?.elements, [
        {
          label: "Data",
          points: [
            [1, 4],
            [2, 5],
            [3, 6],
          ],
        },
      ]);
      const table = await sandbox.runCode("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None]})", PATIENT);
      assert.deepEqual(table.results[0]?.data, { a: [1, 2], b: ["x", null] });
      assert.match(table.results[0]?.html ?? "", /<table/);
      assert.equal(table.results[0]?.isMainResult, true);
    });

    test("an image that is shown, saved under a name, or the last value", async () => {
      const make = "from PIL import Image\nimage = Image.new('RGBA', (16, 16), 'red')\n";
      for (const code of ["image.show()\nprint('done')", "image", "image.save('/tmp/saved.png')"]) {
        const { results, error } = await sandbox.runCode(make + code);
        assert.equal(error, undefined, code);
        assert.equal(results.length, 1, code);
        assert.deepEqual(Buffer.from(results[0]?.png ?? "", "base64").subarray(0, 4), PNG, code);
      }
      const figure = await sandbox.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('/tmp/figure.png')");
      assert.equal(figure.results.length, 1, "a figure that is saved is shown once");
    });

    test("the angles of a pie match its parts", async () => {
      const code = "import matplotlib.pyplot as plt\nplt.pie([90, 10], labels=['most', 'rest'], startangle=90)\nplt.show()";
      const chart = (await sandbox.runCode(code)).results[0]?.chart as newest.PieChart | undefined;
      assert.deepEqual(chart?.elements, [
        { label: "most", angle: 324, radius: 1 },
        { label: "rest", angle: 36, radius: 1 },
      ]);
    });

    test("a printed line is one message", async () => {
      for (let i = 0; i < 5; i++) assert.deepEqual((await sandbox.runCode("print('hello')")).logs.stdout, ["hello\n"]);
    });

    test("JavaScript imports", async () => {
      const code = "import path, { sep } from 'node:path'\npath.join('a', 'b') + sep";
      assert.equal((await sandbox.runCode(code, { language: "js" })).text, "a/b/");
    });

    test("other formats, and display()", async () => {
      const { results } = await sandbox.runCode(
        "from IPython.display import display, Markdown, SVG, Latex, JSON, Javascript, HTML\n" +
          "display(Markdown('*m*'), SVG('<svg/>'), Latex('$x$'), JSON({'a': 1}), Javascript('1'))\nHTML('<i>')",
      );
      const [markdown, svg, latex, json, javascript, html] = results;
      assert.deepEqual([markdown?.markdown, svg?.svg, latex?.latex, javascript?.javascript], ["*m*", "<svg/>", "$x$", "1"]);
      assert.deepEqual(json?.json, { a: 1 });
      assert.deepEqual([html?.html, html?.isMainResult, svg?.isMainResult], ["<i>", true, false]);
    });

    test("environment variables of the sandbox, and of one run", async () => {
      const asked = "import os; (os.environ.get('COLOUR'), os.environ.get('ONE'))";
      assert.equal((await sandbox.runCode(asked, { envs: { ONE: "1", COLOUR: "red" } })).text, "('red', '1')");
      assert.equal((await sandbox.runCode(asked)).text, "('blue', None)");
    });

    test("javascript and bash keep their state, and an unknown language is refused with the reason", async () => {
      await sandbox.runCode("const y = 20", { language: "javascript" });
      assert.equal((await sandbox.runCode("await Promise.resolve(y + 1)", { language: "js" })).text, "21");
      await sandbox.runCode("z=5; cd /tmp", { language: "bash" });
      const shell = await sandbox.runCode("echo $z $PWD $COLOUR; (exit 3)", { language: "bash" });
      assert.deepEqual([shell.logs.stdout.join(""), shell.error?.value], ["5 /tmp blue\n", "exit status 3"]);
      const refused: [language: string, why: RegExp][] = [
        ["cobol", /the languages are python, javascript, typescript, r, java and bash/],
        ["ts", /the image cannot run typescript, it has no TypeScript compiler/],
        ["r", /the image cannot run r, it has no R /],
        ["java", /the image cannot run java, it has no Java /],
      ];
      for (const [language, why] of refused) {
        const isRight = (error: Error): boolean => error instanceof NotFoundError && why.test(error.message);
        await assert.rejects(sandbox.runCode("1", { language }), isRight);
      }
    });

    test("contexts: created, listed, isolated from each other, restarted, removed", async () => {
      const context = await sandbox.createCodeContext({ cwd: "/tmp" });
      assert.deepEqual([context.language, context.cwd], ["python", "/tmp"]);
      assert.equal((await sandbox.runCode("import os; x = 'own'; os.getcwd()", { context })).text, "/tmp");
      assert.equal((await sandbox.runCode("x")).text, "2");
      const ids = (await sandbox.listCodeContexts()).map(({ id }) => id);
      assert.ok(ids.includes(context.id) && ids.includes("python"));
      await sandbox.restartCodeContext(context);
      assert.equal((await sandbox.runCode("x", { context })).error?.name, "NameError");
      await sandbox.removeCodeContext(context.id);
      await assert.rejects(sandbox.runCode("1", { context }), NotFoundError);
    });

    test("code that exceeds its time-out is interrupted, and the interpreter stays usable", async () => {
      await assert.rejects(sandbox.runCode("import time\ntime.sleep(600)", { timeoutMs: 500 }), TimeoutError);
      assert.equal((await sandbox.runCode("x")).text, "2");
    });

    test("interpreters start again in a sandbox that was paused without its memory", async () => {
      const other = await Sandbox.create(PATIENT);
      await other.runCode("kept = 1; open('/home/user/kept', 'w').write('file')");
      await other.pause({ keepMemory: false });
      await other.connect();
      assert.equal((await other.runCode("'kept' in globals(), open('/home/user/kept').read()")).text, "(False, 'file')");
      assert.equal((await other.runCode("1 + 1", { language: "js" })).text, "2");
      await other.kill();
    });

    test("an interpreter that code ended is restarted", async () => {
      const { error } = await sandbox.runCode("import os; os._exit(1)");
      assert.equal(error?.name, "KERNEL_DIED");
      assert.equal((await sandbox.runCode("'x' in globals()")).text, "False");
    });
  });
}

for (const [version, core] of Object.entries(PYTHON_VERSIONS)) {
  test(`PyPI ${version}`, async (t) => {
    const found = await pythonWith({ "e2b-code-interpreter": version, e2b: core });
    if ("reason" in found) return t.skip(found.reason);
    const script = join(import.meta.dirname, "..", "programs", "code-interpreter.py");
    const { stdout } = await run(found.python, [script], { env: { ...process.env, ...e2b.env }, timeout: patience(40) });
    assert.equal(stdout, "all of it works\n");
  });
}

// Cases for programs, code and logs inside a sandbox. All use the sandbox "one".

import { patience } from "../helpers/patience.ts";
import { above, fails, gives, isText, REST_AND_SDK, type Case, type Context } from "./case.ts";

const BINARY = Buffer.from(Array.from({ length: 512 }, (_, i) => i % 256));

/** Many times the start-up time of a shell */
const SHORT_SECS = patience(0.1) / 1000;

const one = (c: Context): string => c.name("one");

function exec(what: string, body: Record<string, unknown>, expect: Case["expect"], more: Partial<Case> = {}): Case {
  return { what, route: "execCommand", args: (c) => ({ params: { id: one(c) }, body }), expect, ...more };
}

function evaluate(what: string, body: Record<string, unknown>, expect: Case["expect"], more: Partial<Case> = {}): Case {
  return { what, route: "evalCode", args: (c) => ({ params: { id: one(c) }, body }), expect, ...more };
}

const sh = (script: string): { args: string[] } => ({ args: ["sh", "-c", script] });

/** Exit codes of a shell for a program that cannot run */
function cannotRun(exitCode: 126 | 127, errno: unknown = isText): Case["expect"] {
  return fails("EXEC_FAILED", { details: { exit_code: exitCode, errno } });
}

const NO_CONTEXTS = { mcp: "there is no tool that makes contexts" };

/** A request with the id of the saved context */
function inContext(what: string, route: Case["route"], body: Record<string, unknown> | undefined, expect: Case["expect"]): Case {
  const context = (c: Context): string => c.at("shell.id");
  const args: Case["args"] = (c) =>
    route === "evalCode"
      ? { params: { id: one(c) }, body: { ...body, context: context(c) } }
      : { params: { id: one(c), context: context(c) } };
  return { what, route, args, expect, not: NO_CONTEXTS };
}

export const insideCases: Case[] = [
  exec(
    "both streams of a program and its exit code",
    sh("echo out; echo err >&2; exit 3"),
    gives({
      stdout: "out\n",
      stderr: "err\n",
      exit_code: 3,
      signal: null,
      timed_out: false,
      truncated: false,
    }),
  ),
  exec("arguments are not a shell's", { args: ["echo", "$HOME", "a b", "--", "*"] }, gives({ stdout: "$HOME a b -- *\n", exit_code: 0 })),
  exec("standard input", { args: ["cat"], stdin: "läuft\n" }, gives({ stdout: "läuft\n" })),
  exec("environment, over the sandbox's own", { ...sh("echo $MODE $EXTRA"), env: { EXTRA: "yes" } }, gives({ stdout: "contract yes\n" })),
  exec("working folder", { args: ["pwd"], cwd: "/tmp" }, gives({ stdout: "/tmp\n" })),
  exec("user", { args: ["id", "-un"], user: "nobody" }, gives({ stdout: "nobody\n" })),
  exec(
    "a time-out ends it",
    { ...sh("echo begun; sleep 1000"), timeout_secs: SHORT_SECS },
    gives({ timed_out: true, exit_code: 124, stdout: "begun\n" }),
  ),
  exec("a signal ends it", sh("kill -TERM $$"), gives({ signal: "SIGTERM", exit_code: 143, timed_out: false })),
  exec(
    "bytes that are no text, both ways",
    { args: ["cat"], stdin: BINARY.toString("base64"), encoding: "base64" },
    gives({ stdout: BINARY.toString("base64"), exit_code: 0 }),
  ),
  exec(
    "output is cut, and said to be",
    { ...sh("printf 0123456789; printf abc >&2"), max_output_bytes: 4 },
    gives({ stdout: "0123", stderr: "abc", truncated: true, exit_code: 0 }),
    { not: REST_AND_SDK("the command line keeps as much as it can") },
  ),
  exec("a program that does not exist", { args: ["/no/such/program"] }, cannotRun(127, "ENOENT")),
  exec("a program that is on no path", { args: ["no-such-program"] }, cannotRun(127, "ENOENT")),
  exec("a file that is no program", { args: ["/etc/passwd"] }, cannotRun(126, "EACCES")),
  exec("a folder that does not exist", { args: ["true"], cwd: "/no/such/folder" }, cannotRun(126, "ENOENT")),
  exec("a user that does not exist", { args: ["true"], user: "no-such-user" }, cannotRun(126)),
  exec("no program at all", { args: [] }, fails("BAD_REQUEST", { usage: true })),
  {
    what: "a program in no sandbox",
    route: "execCommand",
    args: () => ({ params: { id: "sb-nothing" }, body: { args: ["true"] } }),
    expect: fails("NOT_FOUND"),
  },

  evaluate(
    "the value of the last expression",
    { code: "x = [1, {'a': None}]\nx" },
    gives({ value: [1, { a: null }], result: "[1, {'a': None}]", exit_code: 0, error: null }),
  ),
  evaluate("statements have none, and keep their state", { code: "counter = 40" }, gives({ result: null, exit_code: 0 })),
  evaluate("state is kept for the next code", { code: "counter += 2\ncounter" }, gives({ value: 42 })),
  evaluate("what JSON cannot carry comes as text only", { code: "1j" }, gives({ result: "1j", value: undefined })),
  evaluate("warm imports are there", { code: "int(numpy.arange(5).sum())" }, gives({ value: 10 })),
  evaluate(
    "printed output",
    { code: "import sys\nprint('grüße')\nprint('e', file=sys.stderr)" },
    gives({ stdout: "grüße\n", stderr: "e\n" }),
  ),
  evaluate(
    "an error is a result",
    { code: "print('so far')\n1 / 0" },
    gives({
      error: "ZeroDivisionError: division by zero",
      error_type: "ZeroDivisionError",
      exit_code: 1,
      result: null,
      stdout: "so far\n",
      traceback: /line 2/,
    }),
  ),
  evaluate("code that does not end is interrupted", { code: "while True: pass", timeout_secs: SHORT_SECS }, fails("EVAL_TIMEOUT")),
  evaluate("the interpreter keeps its state", { code: "counter" }, gives({ value: 42 })),
  evaluate("the language can be given", { code: "'py'", language: "python" }, gives({ value: "py" })),
  evaluate("a language it does not have", { code: "1", language: "node" }, fails("KERNEL_MISSING")),
  evaluate("how many there were", { code: "1" }, gives({ execution_count: above(5), results: [] })),
  evaluate(
    "displayed objects in several formats",
    { code: "class Bold:\n    def _repr_html_(self): return '<b>'\ndisplay(Bold())\nBold()" },
    gives({
      results: [
        { is_main: false, data: { "text/html": "<b>", "text/plain": /Bold/ } },
        { is_main: true, data: { "text/html": "<b>" } },
      ],
    }),
  ),
  evaluate("the sandbox's environment", { code: "import os; os.environ['MODE']" }, gives({ value: "contract" })),
  evaluate("variables for this code only", { code: "import os; os.environ.get('ONLY')", env: { ONLY: "now" } }, gives({ value: "now" })),
  evaluate("environment variables are set for their code only", { code: "os.environ.get('ONLY')" }, gives({ result: null })),
  evaluate(
    "a shell, which is started",
    { code: "x=5; cd /tmp; (exit 3)", language: "bash" },
    gives({ exit_code: 3, error_type: "ExitStatus" }),
  ),
  evaluate("bash keeps its state", { code: "echo $x $PWD", language: "bash" }, gives({ stdout: "5 /tmp\n", exit_code: 0, result: null })),
  evaluate("a context that does not exist", { code: "1", context: "python-none" }, fails("NOT_FOUND")),
  {
    what: "output and results as they come",
    route: "evalStream",
    args: (c) => ({ params: { id: one(c) }, body: { code: "print('a')\ndisplay(1)\nprint('b')\n7" } }),
    expect: gives({ stdout: "a\nb\n", value: 7, results: [{ is_main: false, data: { "text/plain": "1" } }] }),
    not: { cli: "the command line prints all of it at the end", mcp: "a tool answers once" },
  },
  {
    what: "another interpreter",
    route: "createContext",
    args: (c) => ({ params: { id: one(c) }, body: { language: "bash", cwd: "/usr", env: { OWN: "mine" } } }),
    expect: gives({ id: /^bash-[a-z2-7]{16}$/, language: "bash", cwd: "/usr", state: "running" }),
    save: "shell",
    not: NO_CONTEXTS,
  },
  inContext("a new context has its own state", "evalCode", { code: "echo $PWD $OWN [$x]; x=6" }, gives({ stdout: "/usr mine []\n" })),
  {
    what: "a new context is listed",
    route: "listContexts",
    args: (c) => ({ params: { id: one(c) } }),
    expect: (c) => gives([{ id: "python", language: "python" }, { id: "bash" }, { id: c.at("shell.id"), cwd: "/usr" }]),
    not: NO_CONTEXTS,
  },
  inContext("an interrupt when it runs nothing", "interruptContext", undefined, gives(null)),
  inContext("an idle context ignores an interrupt", "evalCode", { code: "echo $x" }, gives({ stdout: "6\n" })),
  inContext("restarted", "restartContext", undefined, gives({ language: "bash", cwd: "/usr", state: "running" })),
  inContext(
    "a restarted context keeps only its folder and environment",
    "evalCode",
    { code: "echo $PWD $OWN [$x]" },
    gives({ stdout: "/usr mine []\n" }),
  ),
  inContext("ended", "deleteContext", undefined, gives(null)),
  inContext("a removed context does not exist", "evalCode", { code: "1" }, fails("NOT_FOUND")),
  {
    what: "interpreters in a language that the image does not have",
    route: "createContext",
    args: (c) => ({ params: { id: one(c) }, body: { language: "node" } }),
    expect: fails("KERNEL_MISSING"),
    not: NO_CONTEXTS,
  },
  {
    what: "in a folder that is not there",
    route: "createContext",
    args: (c) => ({ params: { id: one(c) }, body: { language: "bash", cwd: "/no/such" } }),
    expect: fails("EXEC_FAILED"),
    not: NO_CONTEXTS,
  },
  {
    what: "code in no sandbox",
    route: "evalCode",
    args: () => ({ params: { id: "sb-nothing" }, body: { code: "1" } }),
    expect: fails("NOT_FOUND"),
  },

  exec("something for the console", sh("echo first line > /dev/console; echo last line > /dev/console"), gives({ exit_code: 0 })),
  {
    what: "the console's log",
    route: "getSandboxLogs",
    args: (c) => ({ params: { id: one(c) } }),
    expect: gives(/first line\n(.*\n)*?last line\n/),
    until: true,
  },
  {
    what: "the last line of the log",
    route: "getSandboxLogs",
    args: (c) => ({ params: { id: one(c) }, query: { source: "console", tail: 1 } }),
    expect: gives(/^[^\n]*\n$/),
  },
  {
    what: "the VMM's log",
    route: "getSandboxLogs",
    args: (c) => ({ params: { id: one(c) }, query: { source: "vmm" } }),
    expect: gives(isText),
  },
  { what: "the log of nothing", route: "getSandboxLogs", args: () => ({ params: { id: "sb-nothing" } }), expect: fails("NOT_FOUND") },
];

// Cases for live processes. All use the sandbox "one".

import { above, excluding, fails, gives, including, REST_AND_SDK, type Args, type Case, type Context } from "./case.ts";

const one = (c: Context): string => c.name("one");

type Said = { process?: string; body?: Record<string, unknown>; query?: NonNullable<Args["query"]>; bytes?: Buffer };

function process(what: string, route: Case["route"], said: Said, expect: Case["expect"], more: Partial<Case> = {}): Case {
  const { process: name, ...rest } = said;
  return { what, route, args: (c) => ({ params: { id: one(c), ...(name ? { process: name } : {}) }, ...rest }), expect, ...more };
}

const sh = (script: string): { args: string[] } => ({ args: ["sh", "-c", script] });
const LISTED = REST_AND_SDK("`ps` lists them");
const EXITED = { state: "ended", timed_out: false };

export const processCases: Case[] = [
  process(
    "a process is started and continues to run",
    "startProcess",
    { body: { args: ["sleep", "1000"], tag: "sleeper", cwd: "/tmp", user: "nobody" } },
    gives(
      {
        id: above(0),
        pid: above(0),
        tag: "sleeper",
        args: ["sleep", "1000"],
        cwd: "/tmp",
        user: "nobody",
        terminal: false,
        stdin_open: false,
        started_at_ms: above(1e12),
        state: "running",
        exit_code: null,
        signal: null,
        timed_out: false,
        stdout_bytes: 0,
        stderr_bytes: 0,
      },
      201,
    ),
    { save: "sleeper" },
  ),
  process("it is listed, and the interpreter is not", "listProcesses", {}, gives(including({ tag: "sleeper", state: "running" }))),
  process("the interpreter is forkd's own", "listProcesses", {}, gives(excluding({ tag: "kernel/python" }))),
  process("it is found by its tag", "getProcess", { process: "sleeper" }, (c) => gives({ id: Number(c.at("sleeper.id")) }), {
    not: LISTED,
  }),
  process("a tag belongs to one at a time", "startProcess", { body: { args: ["true"], tag: "sleeper" } }, fails("EXISTS")),
  process("a tag is not a number", "startProcess", { body: { args: ["true"], tag: "12" } }, fails("BAD_REQUEST")),
  process("a signal is sent", "signalProcess", { process: "sleeper", body: { signal: "SIGHUP" } }, gives(null)),
  process(
    "the signal ends it",
    "listProcesses",
    {},
    gives(including({ tag: "sleeper", ...EXITED, state: "ended", exit_code: 129, signal: "SIGHUP" })),
    {
      until: true,
    },
  ),
  process(
    "one that has ended takes no signal",
    "signalProcess",
    { process: "sleeper", body: { signal: "SIGINT" } },
    fails("PROCESS_ENDED"),
  ),

  process("output is kept", "startProcess", { body: { ...sh("echo out; echo err >&2"), tag: "talker" } }, gives({ tag: "talker" }, 201)),
  process(
    "the output is read with the exit code",
    "watchProcess",
    { process: "talker" },
    gives({ stdout: "out\n", stderr: "err\n", exit_code: 0 }),
  ),
  process(
    "from any place",
    "watchProcess",
    { process: "talker", query: { stdout_from: 2, stderr_from: 1 } },
    gives({ stdout: "t\n", stderr: "rr\n", exit_code: 0 }),
  ),
  process(
    "only what is new",
    "watchProcess",
    { process: "talker", query: { stdout_from: "now", stderr_from: "now" } },
    gives({ stdout: "", stderr: "", exit_code: 0 }),
  ),

  process("one that reads", "startProcess", { body: { args: ["cat"], tag: "reader", stdin: true } }, gives({ stdin_open: true }, 201)),
  process(
    "gets what is written to it",
    "writeStdin",
    { process: "reader", query: { close: true }, bytes: Buffer.from("läuft\n") },
    gives(null),
  ),
  process("the output is read up to the end", "watchProcess", { process: "reader" }, gives({ stdout: "läuft\n", exit_code: 0 })),
  process("an ended process accepts no input", "writeStdin", { process: "reader", bytes: Buffer.from("x") }, fails("PROCESS_ENDED"), {
    not: REST_AND_SDK("`attach -i` watches it all the same"),
  }),
  process("one that does not read", "startProcess", { body: { args: ["sleep", "1000"], tag: "deaf" } }, gives({ stdin_open: false }, 201)),
  process("a process without stdin accepts no input", "writeStdin", { process: "deaf", bytes: Buffer.from("x") }, fails("STDIN_CLOSED"), {
    not: REST_AND_SDK("`attach -i` watches it all the same"),
  }),
  process(
    "a process without a terminal cannot be resized",
    "resizeProcess",
    { process: "deaf", body: { rows: 5, cols: 6 } },
    fails("BAD_REQUEST"),
    {
      not: REST_AND_SDK("`exec -t` does it when the terminal changes"),
    },
  ),
  process("it is killed", "killProcess", { process: "deaf" }, gives(null)),
  process(
    "a killed process has ended",
    "listProcesses",
    {},
    gives(including({ tag: "deaf", ...EXITED, exit_code: 137, signal: "SIGKILL" })),
  ),
  process("killing it again changes nothing", "killProcess", { process: "deaf" }, gives(null)),

  process(
    "one with a terminal",
    "startProcess",
    { body: { ...sh("stty size; read x; stty size"), tag: "screen", terminal: { rows: 24, cols: 80 } } },
    gives({ terminal: true, stdin_open: true }, 201),
    { not: REST_AND_SDK("its size is that of the terminal it is started from") },
  ),
  process("a terminal is resized", "resizeProcess", { process: "screen", body: { rows: 50, cols: 132 } }, gives(null), {
    not: REST_AND_SDK("`exec -t` does it when the terminal changes"),
  }),
  process("input is written to the terminal", "writeStdin", { process: "screen", bytes: Buffer.from("\n") }, gives(null), {
    not: REST_AND_SDK("there is no terminal to type at"),
  }),
  process("the terminal has both", "watchProcess", { process: "screen" }, gives({ stdout: /50 132\r\n$/, exit_code: 0 }), {
    not: REST_AND_SDK("there is none"),
  }),

  process(
    "a time-out ends it",
    "startProcess",
    { body: { args: ["sleep", "1000"], tag: "late", timeout_secs: 0.3 } },
    gives({ tag: "late" }, 201),
  ),
  process(
    "a process that timed out is listed as such",
    "listProcesses",
    {},
    gives(including({ tag: "late", state: "ended", timed_out: true, exit_code: 124 })),
    {
      until: true,
    },
  ),
  process("a program that does not exist", "startProcess", { body: { args: ["/no/such/program"] } }, fails("EXEC_FAILED")),
  process("a process that does not exist", "watchProcess", { process: "nothing" }, fails("NOT_FOUND")),
  process("a missing process cannot be signalled", "signalProcess", { process: "99999", body: { signal: "SIGINT" } }, fails("NOT_FOUND")),
  process("a missing process cannot be killed", "killProcess", { process: "nothing" }, fails("NOT_FOUND")),
  {
    what: "processes of no sandbox",
    route: "listProcesses",
    args: () => ({ params: { id: "sb-nothing" } }),
    expect: fails("NOT_FOUND"),
  },
];

// Programs and code inside a sandbox.

import * as z from "zod";
import { bySandbox, env, name, problem } from "./common.ts";
import type { Route } from "./route.ts";

const MAX_TIMEOUT_SECS = 24 * 3600;
const MAX_CODE = 8 * 1024 * 1024;

const timeoutSecs = z.number().positive().max(MAX_TIMEOUT_SECS).default(30);

const execRequest = z
  .strictObject({
    args: z.array(z.string()).min(1).max(4096).meta({ description: "The program and its arguments; no shell" }),
    timeout_secs: timeoutSecs.meta({ description: "Limit of the program's time" }),
    stdin: z.string().optional().meta({ description: "Text for its standard input" }),
    env: env.optional().meta({ description: "Added to the environment of the sandbox" }),
    cwd: z.string().min(1).max(4096).optional().meta({ description: "Working directory" }),
    user: z.string().min(1).max(256).optional().meta({ description: "User of the guest that runs it; without it root" }),
    encoding: z.enum(["utf8", "base64"]).default("utf8").meta({ description: "Of stdin, stdout and stderr" }),
    max_output_bytes: z
      .int()
      .min(0)
      .max(64 * 1024 * 1024)
      .default(8 * 1024 * 1024)
      .meta({ description: "Of each of stdout and stderr" }),
  })
  .meta({ id: "Exec" });

const execResult = z
  .strictObject({
    stdout: z.string(),
    stderr: z.string(),
    exit_code: z.int().meta({ description: "128 + n after signal n, 124 after a time-out" }),
    signal: z.string().nullable(),
    timed_out: z.boolean(),
    truncated: z.boolean().meta({ description: "Output beyond max_output_bytes was dropped" }),
  })
  .meta({ id: "ExecResult" });

export const language = z.enum(["python", "node", "typescript", "r", "java", "bash"]).meta({ id: "Language" });

const evalRequest = z
  .strictObject({
    code: z.string().max(MAX_CODE),
    language: language
      .optional()
      .meta({ description: "Needed only when the snapshot has several; one that is not warm yet is started, where the image has it" }),
    context: name.optional().meta({ description: "Where it runs, in place of the language's own interpreter" }),
    env: env.optional().meta({ description: "Set while this code runs" }),
    timeout_secs: timeoutSecs.meta({ description: "Limit of the code's time" }),
  })
  .refine(({ language: given, context }) => given === undefined || context === undefined, "a context has its language: give one of both")
  .meta({ id: "Eval" });

const displayResult = z
  .strictObject({
    is_main: z.boolean().meta({ description: "It is the value of the last expression" }),
    data: z.record(z.string(), z.unknown()).meta({
      description: "The same in several forms, by MIME type: text, base64 where that is binary, or JSON where the type is JSON",
    }),
    omitted: z.record(z.string(), z.int()).optional().meta({ description: "Forms beyond 8 MiB, and how large they are" }),
  })
  .meta({ id: "DisplayResult" });

const evalResult = z
  .strictObject({
    result: z.string().nullable().meta({ description: "The last value as text" }),
    value: z.unknown().optional().meta({ description: "The last value where JSON can carry it; tuples of Python become arrays" }),
    error: z.string().nullable(),
    error_type: z.string().nullable(),
    traceback: z.string().nullable(),
    exit_code: z.int().meta({ description: "0, or 1 when the code raised an error; of a shell the status of the last command" }),
    stdout: z.string(),
    stderr: z.string(),
    truncated: z.boolean().meta({ description: "Output beyond 8 MiB, or results beyond 256 or 16 MiB, were dropped" }),
    results: z
      .array(displayResult)
      .meta({ description: "What the code displayed, such as figures, and its value where that shows more than text" }),
    execution_count: z.int().meta({ description: "How many its interpreter has run, with this one" }),
  })
  .meta({ id: "EvalResult" });

const evalOutput = z.strictObject({ text: z.string() }).meta({ id: "EvalOutput" });

const evalEnd = evalResult.omit({ stdout: true, stderr: true, results: true }).meta({ id: "EvalEnd" });

const evalEvent = z
  .union([evalOutput, displayResult, evalEnd, problem])
  .meta({ id: "EvalEvent", description: "The data of the events stdout and stderr, result, end, error" });

const pingResult = z.strictObject({ pong: z.literal(true), ms: z.number(), kernels: z.array(z.string()) }).meta({ id: "Pong" });

export const execRoutes = {
  pingSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/ping",
    scope: "exec",
    summary: "One round trip to the agent",
    params: bySandbox,
    responses: { 200: pingResult },
  },
  execCommand: {
    method: "POST",
    path: "/v1/sandboxes/:id/exec",
    scope: "exec",
    summary: "Runs a program to its end",
    params: bySandbox,
    body: execRequest,
    responses: { 200: execResult },
  },
  evalCode: {
    method: "POST",
    path: "/v1/sandboxes/:id/eval",
    scope: "exec",
    summary: "Runs code in a warm interpreter that keeps its state",
    params: bySandbox,
    body: evalRequest,
    responses: { 200: evalResult },
  },
  evalStream: {
    method: "POST",
    path: "/v1/sandboxes/:id/eval/stream",
    scope: "exec",
    summary: "Runs code and streams output and results as server-sent events; a disconnect interrupts the code",
    params: bySandbox,
    body: evalRequest,
    responses: { 200: "events" },
    events: evalEvent,
  },
} as const satisfies Record<string, Route>;

export type ExecRequest = z.infer<typeof execRequest>;
export type ExecResult = z.infer<typeof execResult>;
export type EvalRequest = z.infer<typeof evalRequest>;
export type EvalResult = z.infer<typeof evalResult>;
export type DisplayResult = z.infer<typeof displayResult>;
export type EvalEnd = z.infer<typeof evalEnd>;
export type PingResult = z.infer<typeof pingResult>;

// Programs and code inside a sandbox.

import * as z from "zod";
import { env } from "./common.ts";

const MAX_TIMEOUT_SECS = 24 * 3600;
const MAX_CODE = 8 * 1024 * 1024;

const timeoutSecs = z.number().positive().max(MAX_TIMEOUT_SECS).default(30);

export const execRequest = z
  .strictObject({
    args: z.array(z.string()).min(1).max(4096).meta({ description: "The program and its arguments; no shell" }),
    timeout_secs: timeoutSecs,
    stdin: z.string().optional(),
    env: env.optional(),
    cwd: z.string().min(1).max(4096).optional(),
    user: z.string().min(1).max(256).optional(),
    encoding: z.enum(["utf8", "base64"]).default("utf8").meta({ description: "Of stdin, stdout and stderr" }),
    max_output_bytes: z
      .int()
      .min(0)
      .max(64 * 1024 * 1024)
      .default(8 * 1024 * 1024)
      .meta({ description: "Of each of stdout and stderr" }),
  })
  .meta({ id: "Exec" });

export const execResult = z
  .strictObject({
    stdout: z.string(),
    stderr: z.string(),
    exit_code: z.int().meta({ description: "128 + n after signal n, 124 after a time-out" }),
    signal: z.string().nullable(),
    timed_out: z.boolean(),
    truncated: z.boolean().meta({ description: "Output beyond max_output_bytes was dropped" }),
  })
  .meta({ id: "ExecResult" });

export const evalRequest = z
  .strictObject({
    code: z.string().max(MAX_CODE),
    language: z.enum(["python", "node"]).optional().meta({ description: "Needed only when the snapshot has several" }),
    timeout_secs: timeoutSecs,
  })
  .meta({ id: "Eval" });

export const evalResult = z
  .strictObject({
    result: z.string().nullable().meta({ description: "The last value as text" }),
    value: z.unknown().optional().meta({ description: "The last value where JSON can carry it unchanged" }),
    error: z.string().nullable(),
    error_type: z.string().nullable(),
    traceback: z.string().nullable(),
    exit_code: z.int().meta({ description: "0, or 1 when the code raised an error" }),
    stdout: z.string(),
    stderr: z.string(),
    truncated: z.boolean(),
  })
  .meta({ id: "EvalResult" });

export const pingResult = z.strictObject({ pong: z.literal(true), ms: z.number(), kernels: z.array(z.string()) }).meta({ id: "Pong" });

export type ExecRequest = z.infer<typeof execRequest>;
export type ExecResult = z.infer<typeof execResult>;
export type EvalRequest = z.infer<typeof evalRequest>;
export type EvalResult = z.infer<typeof evalResult>;
export type PingResult = z.infer<typeof pingResult>;

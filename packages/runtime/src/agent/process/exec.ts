// EXEC: request and answer.

import { constants } from "node:os";
import { ForkdError } from "../../errors.ts";
import { signalName } from "../../util/signal-name.ts";
import { Writer, type Reader } from "../../util/codec.ts";
import { within } from "../../util/within.ts";
import { ERRNO } from "../files/error.ts";
import { AgentError, type AgentStream } from "../wire/stream.ts";

const FLAG_STDIN = 1;
const FLAG_CONTROL = 2;
const FLAG_TERMINAL = 4;
const FLAG_EPHEMERAL = 8;
const START_WITHIN_MS = 60_000;
/** Shell conventions: not found; cannot be run */
const EXIT_NOT_FOUND = 127;
const EXIT_CANNOT_RUN = 126;
const EXIT_TIMED_OUT = 124;
const EXIT_SIGNALLED = 128;
/** Time after a program's time-out within which its EXIT must arrive: the agent takes 500 ms from SIGTERM to SIGKILL */
export const TIMEOUT_GRACE_MS = 5000;

export type TerminalSize = { rows: number; cols: number };

export type StartOptions = {
  env?: Record<string, string> | undefined;
  cwd?: string | undefined;
  user?: string | undefined;
  /** SIGTERM, then SIGKILL, to the process group after this many `ms`; 0: never */
  timeoutMs?: number | undefined;
  /** name by which the process can be attached again */
  tag?: string | undefined;
  stdin?: "open" | "null" | undefined;
  /** a terminal in place of pipes: all output is stdout, and stdin is keyboard input */
  terminal?: TerminalSize | undefined;
  /** its process group is killed when its stream ends */
  ephemeral?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

export type ExitStatus = {
  /** exit code; null when a signal ended the process */
  code: number | null;
  signal: string | null;
  timedOut: boolean;
};

/** Content of STARTED: offsets at which the output begins */
export type Started = { id: number; pid: number; stdout: number; stderr: number };

/** The payload of EXEC */
export function execPayload(argv: readonly string[], opts: StartOptions & { control?: boolean | undefined }): Buffer {
  if (argv.length === 0) throw new ForkdError("BAD_REQUEST", "Cannot start a process: argv is empty.");
  const { terminal } = opts;
  const flags =
    (opts.stdin === "open" ? FLAG_STDIN : 0) |
    (opts.control ? FLAG_CONTROL : 0) |
    (terminal ? FLAG_TERMINAL : 0) |
    (opts.ephemeral ? FLAG_EPHEMERAL : 0);
  const writer = new Writer()
    .u8(flags)
    .u64(BigInt(Math.ceil(opts.timeoutMs ?? 0)))
    .str(opts.tag ?? "")
    .list(argv, (out, arg) => void out.str(arg))
    .map(opts.env ?? {})
    .str(opts.cwd ?? "")
    .str(opts.user ?? "");
  if (terminal) writer.u16(terminal.rows).u16(terminal.cols);
  return writer.done();
}

/** The answer to EXEC. After a failure, a program that may have started is killed: it would run without a handle */
export async function awaitStart(stream: AgentStream, argv: readonly string[], opts: StartOptions): Promise<Started> {
  const withinMs = opts.timeoutMs ? Math.min(START_WITHIN_MS, opts.timeoutMs + TIMEOUT_GRACE_MS) : START_WITHIN_MS;
  try {
    const what = `Cannot start ${JSON.stringify(argv[0])} in the guest`;
    return await awaitStarted(stream, what, { withinMs, signal: opts.signal, program: argv[0] });
  } catch (error) {
    stream.signal(constants.signals.SIGKILL, "group");
    stream.cancel();
    throw error;
  }
}

/** The answer to EXEC or ATTACH */
export async function awaitStarted(
  stream: AgentStream,
  what: string,
  opts: { withinMs?: number; signal?: AbortSignal | undefined; program?: string | undefined } = {},
): Promise<Started> {
  const { withinMs = START_WITHIN_MS, signal } = opts;
  const late = (): ForkdError => new ForkdError("AGENT_TIMEOUT", `${what}: its agent did not answer within ${withinMs} ms.`);
  try {
    const reader = await within(stream.started(), withinMs, signal, late);
    return { id: reader.count(), pid: reader.u32(), stdout: reader.count(), stderr: reader.count() };
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    const code = error.errno === "in_use" ? "EXISTS" : error.errno === "no_such_process" ? "NOT_FOUND" : "EXEC_FAILED";
    const details = code === "EXEC_FAILED" ? { details: refusalOf(error, opts.program) } : {};
    throw new ForkdError(code, `${what}: ${error.message}.`, { cause: error, ...details });
  }
}

/** The agent's message begins with the cause: the program, its folder or its user */
function refusalOf({ errno, message }: AgentError, program: string | undefined): Record<string, unknown> {
  const isMissing = errno === "ENOENT" && program !== undefined && message.startsWith(`${program}: `);
  return { ...(ERRNO.test(errno) && { errno }), exit_code: isMissing ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN };
}

/** Content of EXIT */
export function readExit(reader: Reader): ExitStatus {
  const code = reader.i32();
  const signal = reader.u32();
  const timedOut = reader.u8() === 1;
  return { code: signal === 0 ? code : null, signal: signal === 0 ? null : signalName(signal), timedOut };
}

/** As shells have it: 124 for a time-out, 128 and its number for a signal */
export function exitCodeOf({ code, signal, timedOut }: ExitStatus): number {
  if (timedOut) return EXIT_TIMED_OUT;
  if (code !== null) return code;
  return EXIT_SIGNALLED + (constants.signals[signal as NodeJS.Signals] ?? 0);
}

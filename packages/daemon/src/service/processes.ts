// Processes in a sandbox. A watching client holds a lease of the sandbox; the process continues without it.

import { exitCodeOf } from "@forkd/runtime/agent/process/exec";
import { setTimeout as sleep } from "node:timers/promises";
import type { OutputFrom, ProcessExit, ProcessInfo, ProcessStarted, SignalProcess, StartProcess, TerminalSize } from "../api/process.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { ProcessRef } from "@forkd/runtime/agent/process/registry";
import type { ProcessInfo as GuestProcessInfo } from "@forkd/runtime/agent/process/list";
import type { ExitStatus } from "@forkd/runtime/agent/process/exec";
import type { Offsets, OutputChannel, Watch } from "@forkd/runtime/agent/process/output";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { Caller, Viewer } from "./caller.ts";
import type { Lease } from "./lease.ts";
import type { Sandboxes } from "./sandboxes.ts";

const KILL_WITHIN_MS = 10_000;

export type WatchEvent =
  | { type: "data"; channel: OutputChannel; offset: number; bytes: Buffer }
  | { type: "lost"; channel: OutputChannel; offset: number; bytes: number }
  | { type: "exit"; exit: ProcessExit };

/** A watched process; must be read to its end or closed */
export type WatchedProcess = AsyncIterable<WatchEvent> & {
  readonly started: ProcessStarted;
  /** aborted when the reader was too slow and the watch was dropped */
  readonly dropped: AbortSignal;
  write(bytes: Uint8Array): Promise<void>;
  closeStdin(): Promise<void>;
  signal(request: SignalProcess): void;
  resize(size: TerminalSize): void;
  close(): void;
};

export class Processes {
  readonly #sandboxes: Sandboxes;

  constructor(sandboxes: Sandboxes) {
    this.#sandboxes = sandboxes;
  }

  async start(id: string, request: StartProcess, caller: Caller): Promise<ProcessInfo> {
    return this.#sandboxes.use(id, caller, async (sandbox) => {
      const watch = await sandbox.start(request.args, startOptions(request, caller));
      try {
        return infoOf(await sandbox.processes.find({ id: watch.id }));
      } finally {
        watch.close();
      }
    });
  }

  /** Same, watched from the first byte */
  async startWatched(id: string, request: StartProcess, caller: Caller): Promise<WatchedProcess> {
    return this.#watched(id, caller, async (sandbox) => {
      const watch = await sandbox.start(request.args, startOptions(request, caller));
      return { watch, tag: request.tag ?? "", terminal: request.terminal !== undefined };
    });
  }

  async list(id: string, caller: Viewer): Promise<ProcessInfo[]> {
    return this.#sandboxes.use(id, caller, async (sandbox) => (await sandbox.processes.list()).map(infoOf));
  }

  async get(id: string, process: string, caller: Viewer): Promise<ProcessInfo> {
    return this.#sandboxes.use(id, caller, async (sandbox) => infoOf(await sandbox.processes.find(refOf(process))));
  }

  /** Rejects if there is no such process. Without `follow` it ends after the current output */
  async watch(id: string, process: string, from: OutputFrom & { follow?: boolean | undefined }, caller: Viewer): Promise<WatchedProcess> {
    return this.#watched(id, caller, async (sandbox) => {
      const places = { stdout: from.stdout_from, stderr: from.stderr_from };
      const { watch, info } = await sandbox.processes.watch(refOf(process), places);
      // an ended process needs no limit: its stream ends by itself
      const until = from.follow === false && !info.exit ? { stdout: info.stdout, stderr: info.stderr } : undefined;
      return { watch, until, tag: info.tag, terminal: info.terminal };
    });
  }

  /** Holds the lease until the watch ends */
  async #watched(id: string, caller: Viewer, open: (sandbox: Sandbox) => Promise<Watching>): Promise<WatchedProcess> {
    const lease = await this.#sandboxes.lease(id, caller);
    try {
      return watched(await open(lease.sandbox), lease);
    } catch (error) {
      lease.release();
      throw lease.explain(error);
    }
  }

  /** Resolves when all input was sent, which depends on how fast the process reads */
  async write(
    id: string,
    process: string,
    content: AsyncIterable<Uint8Array>,
    opts: { close: boolean },
    caller: Pick<Caller, "project" | "signal">,
  ): Promise<void> {
    await this.#sandboxes.use(id, caller, async (sandbox) =>
      sandbox.processes.use(refOf(process), async (shared) => {
        for await (const piece of content) {
          caller.signal.throwIfAborted();
          await unlessAborted(shared.write(piece), caller.signal);
        }
        if (opts.close) await shared.closeStdin();
      }),
    );
  }

  async signal(id: string, process: string, request: SignalProcess, caller: Viewer): Promise<void> {
    await this.#sandboxes.use(id, caller, async (sandbox) =>
      sandbox.processes.use(refOf(process), (shared) => shared.signal(request.signal, request.scope)),
    );
  }

  async resize(id: string, process: string, size: TerminalSize, caller: Viewer): Promise<void> {
    await this.#sandboxes.use(id, caller, async (sandbox) =>
      sandbox.processes.use(refOf(process), (shared, info) => {
        if (!info.terminal) throw new ForkdError("BAD_REQUEST", `Cannot resize process ${info.id}: it has no terminal.`);
        shared.resize(size);
      }),
    );
  }

  /** Resolves when the process has ended, also if it had ended before */
  async kill(id: string, process: string, caller: Viewer): Promise<void> {
    await this.#sandboxes.use(id, caller, async (sandbox) => {
      const { watch, info } = await sandbox.processes.watch(refOf(process), { stdout: "now", stderr: "now" });
      try {
        if (info.exit) return;
        watch.signal("SIGKILL", "group");
        const late = sleep(KILL_WITHIN_MS, undefined, { ref: false }).then(() => {
          throw new ForkdError("AGENT_TIMEOUT", `Process ${info.id} was killed and did not end within ${KILL_WITHIN_MS / 1000} s.`);
        });
        await Promise.race([watch.finish(), late]);
      } finally {
        watch.close();
      }
    });
  }
}

function startOptions(request: StartProcess, caller: Caller): Parameters<Sandbox["start"]>[1] {
  const { env, cwd, user, tag, terminal, stdin, timeout_secs: secs } = request;
  const timeoutMs = secs === undefined ? 0 : Math.ceil(secs * 1000);
  return { env, cwd, user, tag, terminal, timeoutMs, stdin: stdin ? "open" : "null", signal: caller.signal };
}

/** Digits are an id: no tag consists of digits only */
function refOf(process: string): ProcessRef {
  return /^\d+$/.test(process) ? { id: Number(process) } : { tag: process };
}

type Watching = {
  watch: Watch;
  tag: string;
  terminal: boolean;
  /** offsets at which the watch ends, if before the end of the process */
  until?: Offsets | undefined;
};

function watched({ watch, tag, terminal, until }: Watching, lease: Lease): WatchedProcess {
  const { stdout, stderr } = watch.began;
  let isOpen = true;
  const close = (): void => {
    if (!isOpen) return;
    isOpen = false;
    lease.release();
    watch.close();
  };
  const events = async function* (): AsyncGenerator<WatchEvent> {
    const at = { stdout, stderr };
    try {
      for (;;) {
        if (until && at.stdout >= until.stdout && at.stderr >= until.stderr) return;
        const step = await watch.next();
        if (step.done) return;
        const event = step.value;
        if (event.type === "data") at[event.channel] = event.offset + event.bytes.length;
        yield event.type === "exit" ? { type: "exit", exit: exitOf(event.status) } : event;
      }
    } catch (error) {
      throw lease.explain(error);
    } finally {
      close();
    }
  };
  return {
    started: { id: watch.id, pid: watch.pid, tag: tag === "" ? null : tag, terminal, stdout_offset: stdout, stderr_offset: stderr },
    dropped: watch.dropped,
    [Symbol.asyncIterator]: events,
    write: async (bytes) => watch.write(bytes),
    closeStdin: async () => watch.closeStdin(),
    signal: (request) => watch.signal(request.signal, request.scope),
    resize: (size) => watch.resize(size),
    close,
  };
}

function infoOf(info: GuestProcessInfo): ProcessInfo {
  const exit = info.exit && exitOf(info.exit);
  return {
    id: info.id,
    pid: info.pid,
    tag: info.tag === "" ? null : info.tag,
    args: info.argv,
    cwd: info.cwd,
    user: info.user,
    terminal: info.terminal,
    stdin_open: info.stdin,
    started_at_ms: info.startedMs,
    state: exit ? "ended" : "running",
    exit_code: exit?.exit_code ?? null,
    signal: exit?.signal ?? null,
    timed_out: exit?.timed_out ?? false,
    stdout_bytes: info.stdout,
    stderr_bytes: info.stderr,
  };
}

function exitOf(status: ExitStatus): ProcessExit {
  return { exit_code: exitCodeOf(status), signal: status.signal, timed_out: status.timedOut };
}

/** Stops waiting on abort: a process that does not read its input must not block after the client has disconnected */
async function unlessAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  const stop = Promise.withResolvers<never>();
  const abort = (): void => stop.reject(signal.reason as Error);
  signal.addEventListener("abort", abort, { once: true });
  work.catch(() => undefined); // avoid an unhandled rejection when the wait was aborted
  try {
    await Promise.race([work, stop.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

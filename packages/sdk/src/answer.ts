// An HTTP answer whose head was received, and the error of a body that breaks off.

import { ConnectionError, errorOfProblem, type ErrorContext } from "./errors.ts";
import { parseJson } from "./streams.ts";
import type { Deadline } from "./deadline.ts";
import type { Problem } from "./schema.gen.ts";
import type { WireResponse } from "./transport.ts";

/** Request line for error messages */
export type Origin = { method: string; base: string; path: string };

export class Answer {
  private readonly response: WireResponse;
  private readonly origin: Origin;
  private readonly deadline: Deadline;

  constructor(response: WireResponse, origin: Origin, deadline: Deadline) {
    this.response = response;
    this.origin = origin;
    this.deadline = deadline;
  }

  get status(): number {
    return this.response.status;
  }

  get context(): ErrorContext {
    const { method, base, path } = this.origin;
    const retryAfter = Number(this.header("retry-after") ?? Number.NaN);
    return {
      method,
      url: base + path,
      requestId: this.header("x-request-id"),
      retryAfterSecs: Number.isFinite(retryAfter) ? retryAfter : undefined,
    };
  }

  header(name: string): string | undefined {
    return this.response.header(name);
  }

  cancel(): void {
    this.response.cancel();
  }

  async text(): Promise<string> {
    try {
      return await this.response.text();
    } catch (error) {
      throw this.broken(error);
    }
  }

  async *chunks(): AsyncGenerator<Uint8Array> {
    const iterator = this.response.chunks()[Symbol.asyncIterator]();
    let isOver = false;
    try {
      for (;;) {
        const step = await iterator.next().catch((error: unknown) => {
          isOver = true;
          throw this.broken(error);
        });
        isOver = step.done === true;
        if (step.done === true) break;
        yield step.value;
      }
    } finally {
      if (!isOver) await iterator.return?.();
    }
    const problem = this.response.problem?.();
    if (problem !== undefined) throw errorOfProblem(parseJson(problem) as Problem, this.context);
  }

  broken(cause: unknown): Error {
    return connectionError("The connection to the daemon broke", cause, this.origin, this.deadline);
  }
}

/** The error of a failed transport: the caller's abort reason, a time-out, or no connection */
export function connectionError(what: string, cause: unknown, { method, base, path }: Origin, deadline: Pick<Deadline, "signal">): Error {
  if (deadline.signal.aborted) return deadline.signal.reason as Error;
  return new ConnectionError("DAEMON_UNREACHABLE", `${what} at ${base}: ${reasonOf(cause)}.`, {
    hint: "Start it with 'forkd up', or check FORKD_URL.",
    method,
    url: base + path,
    cause,
  });
}

/** fetch reports only "fetch failed"; its cause has the reason */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const inner = error.cause instanceof Error ? error.cause : error;
  const code = (inner as { code?: unknown }).code;
  if (code === "ENOENT") return "there is no such socket";
  if (code === "ECONNREFUSED") return "nothing listens there";
  if (code === "EINVAL") return "its path is too long for a Unix socket, which takes 107 bytes";
  return (inner.message || (typeof code === "string" ? code : inner.name)).replace(/\.$/, "");
}

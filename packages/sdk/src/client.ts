// One call: sends it, repeats it where that is safe, bounds its time, and decodes its answer or error.

import { Answer, connectionError } from "./answer.ts";
import { Deadline, sleep } from "./deadline.ts";
import { ConnectionError, errorOfAnswer, errorOfProblem, ForkdError, NotFoundError } from "./errors.ts";
import { PortTransport } from "./port-transport.ts";
import { jsonLinesOf, parseJson } from "./streams.ts";
import { currentHost, describeTarget, resolveProject, resolveStore, resolveTarget, resolveToken, type Target } from "./target.ts";
import { fetchTransport, StaleConnection, type Fetch, type Transport } from "./transport.ts";
import { isStream, Upload } from "./upload.ts";
import { queryString, type QueryValues } from "./wire.ts";
import type { CallOptions, ControllerOptions, FileContent, Page } from "./call-options.ts";
import type { Problem, Progress } from "./schema.gen.ts";

/** Waits before the second and the third try */
const RETRY_MS = [50, 250];
/** Longest wait between tries, also when the daemon asks for more */
const MAX_RETRY_MS = 1000;

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export type Call = CallOptions & {
  query?: QueryValues | undefined;
  json?: object | undefined;
  content?: FileContent | undefined;
  headers?: Record<string, string> | undefined;
  idempotencyKey?: string | null | undefined;
  /** Default: true for GET, DELETE and calls with an idempotency key */
  canRepeat?: boolean | undefined;
  /** Statuses other than 2xx that are answers, not errors */
  answers?: readonly number[] | undefined;
};

type Reader<T> = (response: Answer) => Promise<T>;

export class Client {
  /** Base address of requests, such as `unix:///run/user/1000/forkd/forkd.sock` */
  readonly url: string;
  readonly timeoutMs: number;
  private readonly token: string | undefined;
  private readonly target: Target;
  private readonly store: string | undefined;
  private readonly project: string | undefined;
  private readonly fetch: Fetch | undefined;
  private readonly retries: number;
  private transport: Promise<Transport> | undefined;
  /** Transport for servers inside sandboxes */
  readonly ports: PortTransport;

  constructor(opts: ControllerOptions) {
    const host = currentHost();
    this.target = resolveTarget({ url: opts.url ?? opts.baseUrl, socket: opts.socket }, host);
    this.token = resolveToken(opts.token, host);
    this.store = resolveStore(this.target, host);
    this.project = resolveProject(opts.project, host);
    this.url = describeTarget(this.target);
    this.timeoutMs = opts.timeoutMs ?? 60_000;
    this.fetch = opts.fetch;
    this.retries = opts.retries ?? RETRY_MS.length;
    const { target, url, token, store, project, fetch, timeoutMs } = this;
    this.ports = new PortTransport({ target, url, token, store, project, fetch, timeoutMs });
  }

  async json<T>(method: Method, path: string, call: Call = {}): Promise<T> {
    return await this.run(method, path, call, async (answer) => parseJson(await answer.text()) as T);
  }

  async text(method: Method, path: string, call: Call = {}): Promise<string> {
    return await this.run(method, path, call, (answer) => answer.text());
  }

  async empty(method: Method, path: string, call: Call = {}): Promise<void> {
    await this.run(method, path, call, (answer) => answer.text());
  }

  async page<T>(path: string, call: Call): Promise<Page<T>> {
    return await this.run("GET", path, call, async (answer) => {
      const items = parseJson(await answer.text()) as T[];
      // Not enumerable: a page prints, compares and serialises as a plain array.
      return Object.defineProperty(items, "nextCursor", { value: answer.header("x-next-cursor") ?? null }) as Page<T>;
    });
  }

  /** Long work. The answer is streamed line by line: progress is visible, and no proxy closes an idle connection */
  async progress<T>(method: Method, path: string, call: Call, onProgress: ((progress: Progress) => void) | undefined): Promise<T> {
    const headers = { ...call.headers, accept: "application/x-ndjson, application/json;q=0.9" };
    return await this.run(method, path, { ...call, headers }, async (answer) => {
      if (answer.header("content-type")?.startsWith("application/x-ndjson") !== true) return parseJson(await answer.text()) as T;
      for await (const line of jsonLinesOf(answer.chunks())) {
        const { progress, result, error } = line as { progress?: Progress; result?: T; error?: Problem };
        if (progress !== undefined) onProgress?.(progress);
        else if (error !== undefined) throw errorOfProblem(error, answer.context);
        else if (result !== undefined) return result;
      }
      throw answer.broken(new Error("the answer ended without a result"));
    });
  }

  /** Bytes as they arrive. `timeoutMs` bounds the wait for the answer and, unless `isEndless`, each silence after it */
  async *stream(
    method: Method,
    path: string,
    call: Call,
    opts: { isEndless?: boolean; onOpen?: () => void } = {},
  ): AsyncGenerator<Uint8Array> {
    const isEndless = opts.isEndless === true;
    const deadline = this.deadline(method, path, call);
    let answer: Answer | undefined;
    try {
      answer = await this.attempts(method, path, call, deadline, (opened) => Promise.resolve(opened));
      opts.onOpen?.();
      if (isEndless) deadline.pause();
      for await (const chunk of answer.chunks()) {
        if (!isEndless) deadline.pause();
        yield chunk;
        if (!isEndless) deadline.restart();
      }
    } finally {
      answer?.cancel();
      deadline.close();
    }
  }

  private async run<T>(method: Method, path: string, call: Call, read: Reader<T>): Promise<T> {
    const deadline = this.deadline(method, path, call);
    try {
      return await this.attempts(method, path, call, deadline, read);
    } finally {
      deadline.close();
    }
  }

  private deadline(method: Method, path: string, call: Call): Deadline {
    return new Deadline(`${method} ${path}`, call.timeoutMs ?? this.timeoutMs, call.signal ?? undefined);
  }

  private async attempts<T>(method: Method, path: string, call: Call, deadline: Deadline, read: Reader<T>): Promise<T> {
    const isSafe = call.canRepeat ?? (method === "GET" || method === "DELETE" || typeof call.idempotencyKey === "string");
    const canRepeat = isSafe && (call.content === undefined || !isStream(call.content));
    let wasLost = false;
    for (let attempt = 0; ; attempt++) {
      try {
        return await read(await this.exchange(method, path, call, deadline));
      } catch (error) {
        // The try whose answer was lost has removed it.
        if (wasLost && method === "DELETE" && isGone(error)) return undefined as T;
        if (!canRepeat || attempt >= this.retries || deadline.signal.aborted || !isTransient(error)) throw error;
        wasLost ||= error instanceof ConnectionError;
        await sleep(retryDelayMs(error, attempt), deadline.signal);
      }
    }
  }

  private async exchange(method: Method, path: string, call: Call, deadline: Deadline): Promise<Answer> {
    const origin = { method, base: this.url, path: path + queryString(call.query) };
    const upload = call.content === undefined ? undefined : new Upload(call.content, deadline);
    const body = upload?.body ?? (call.json === undefined ? undefined : JSON.stringify(call.json));
    let answer: Answer;
    try {
      const transport = await this.open();
      const headers = this.headers(call);
      answer = new Answer(await transport({ method, path: origin.path, headers, body, signal: deadline.signal }), origin, deadline);
    } catch (error) {
      throw upload?.failure ?? connectionError("Cannot reach the daemon", error, origin, deadline);
    }
    if ((answer.status >= 200 && answer.status < 300) || call.answers?.includes(answer.status) === true) return answer;
    throw errorOfAnswer(answer.status, await answer.text(), answer.context);
  }

  /** Opened by the first call, and again after a failure */
  private async open(): Promise<Transport> {
    try {
      return await (this.transport ??= openTransport(this.target, this.fetch));
    } catch (error) {
      this.transport = undefined;
      throw error;
    }
  }

  private headers(call: Call): Record<string, string> {
    const type = call.json !== undefined ? "application/json" : call.content !== undefined ? "application/octet-stream" : undefined;
    return {
      ...(type === undefined ? {} : { "content-type": type }),
      ...(this.token === undefined ? {} : { authorization: `Bearer ${this.token}` }),
      ...(this.store === undefined ? {} : { "x-forkd-store": this.store }),
      ...(this.project === undefined ? {} : { "x-forkd-project": this.project }),
      ...(typeof call.idempotencyKey !== "string" ? {} : { "idempotency-key": call.idempotencyKey }),
      ...call.headers,
    };
  }
}

async function openTransport(target: Target, fetch: Fetch | undefined): Promise<Transport> {
  if (target.kind === "url") return fetchTransport(target.url, fetch ?? ((url, init) => globalThis.fetch(url, init)));
  const { unixTransport } = await import("./transport-node.ts");
  return await unixTransport(target.socket, { uid: target.uid });
}

/** The daemon's Retry-After, else a growing wait with jitter, so that clients do not retry at the same time */
function retryDelayMs(error: ForkdError, attempt: number): number {
  if (error.cause instanceof StaleConnection) return 0;
  if (error.retryAfterSecs !== undefined) return Math.min(error.retryAfterSecs * 1000, MAX_RETRY_MS);
  return (RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 0) * (0.5 + Math.random());
}

function isGone(error: unknown): boolean {
  return error instanceof NotFoundError || (error instanceof ForkdError && error.code === "FILE_NOT_FOUND");
}

/** Whether another try may succeed. A missing socket does not appear by waiting */
function isTransient(error: unknown): error is ForkdError {
  if (!(error instanceof ForkdError)) return false;
  if (error instanceof ConnectionError) return (error.cause as { code?: unknown } | undefined)?.code !== "ENOENT";
  return error.code === "BUSY" || error.code === "STOPPING";
}

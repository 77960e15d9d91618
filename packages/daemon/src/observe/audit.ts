// Audit log: one JSON line per request and per connection of a sandbox, in the order in which they end.

import { open } from "node:fs/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import type { FileHandle } from "node:fs/promises";
import type { ConnectionFacts } from "../api/network.ts";
import type { Logger } from "./log.ts";

const MAX_QUEUED = 10_000;
const MAX_TEXT = 256;
/** how long lines are batched: one write per line would dominate the cost of a small request */
const GATHER_MS = 20;

export type AuditEntry = {
  request_id: string;
  /** name of the token, or kind of the link or access token; null: not authenticated */
  principal: string | null;
  /** creator of the sandbox; null: the request concerns none */
  maker: string | null;
  remote: string;
  method: string;
  /** without the query, which may contain secrets */
  path: string;
  sandbox: string | null;
  snapshot: string | null;
  status: number;
  latency_us: number;
  user_agent: string | null;
};

export type ConnectionEntry = {
  connection: "opened" | "refused" | "ended";
  /** null: a connection of a snapshot's warm-up */
  sandbox: string | null;
  snapshot: string;
  /** name of the token that created the sandbox */
  principal: string | null;
} & ConnectionFacts;

/** Never blocks requests. Lost lines are counted; the next successful write reports the count */
export class AuditLog implements AsyncDisposable {
  readonly #path: string;
  readonly #log: Logger;
  readonly #maxQueued: number;
  #file: FileHandle;
  #queue: string[] = [];
  #lost = 0;
  #isFailing = false;
  /** serializes writes and reopening */
  #work: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #closed: Promise<void> | null = null;

  private constructor(path: string, file: FileHandle, log: Logger, maxQueued: number) {
    this.#path = path;
    this.#file = file;
    this.#log = log;
    this.#maxQueued = maxQueued;
  }

  static async open(path: string, log: Logger, opts: { maxQueued?: number } = {}): Promise<AuditLog> {
    try {
      return new AuditLog(path, await openForAppend(path), log, opts.maxQueued ?? MAX_QUEUED);
    } catch (error) {
      throw new ForkdError("BAD_CONFIG", `Cannot use audit_log ${path}: ${messageOf(error)}.`, { cause: error });
    }
  }

  write(entry: AuditEntry | ConnectionEntry): void {
    if (this.#closed) return;
    if (this.#queue.length >= this.#maxQueued) {
      this.#lost++;
      return;
    }
    // bounded, because unauthenticated clients can cause entries
    const bounded = JSON.stringify({ time: new Date().toISOString(), ...entry }, (_, value: unknown) =>
      typeof value === "string" ? value.slice(0, MAX_TEXT) : value,
    );
    this.#queue.push(`${bounded}\n`);
    this.#timer ??= setTimeout(() => this.#writeNow(), GATHER_MS);
  }

  /** After log rotation: opens a new file under the same name */
  reopen(): Promise<void> {
    this.#writeNow();
    this.#work = this.#work.then(async () => {
      try {
        const file = await openForAppend(this.#path);
        const old = this.#file;
        this.#file = file;
        await old.close();
      } catch (error) {
        this.#log.error({ err: error, path: this.#path }, "cannot reopen the audit log; the open file stays in use");
      }
    });
    return this.#work;
  }

  /** Resolves when all lines so far are written */
  async flush(): Promise<void> {
    this.#writeNow();
    await this.#work;
  }

  close(): Promise<void> {
    this.#closed ??= this.flush().then(() => this.#file.close());
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #writeNow(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#work = this.#work.then(() => this.#writeQueue());
  }

  async #writeQueue(): Promise<void> {
    const lines = this.#queue;
    const lost = this.#lost;
    if (lines.length === 0 && lost === 0) return;
    this.#queue = [];
    this.#lost = 0;
    const gap = lost === 0 ? "" : `${JSON.stringify({ time: new Date().toISOString(), lost })}\n`;
    try {
      await this.#file.appendFile(gap + lines.join(""));
      this.#isFailing = false;
    } catch (error) {
      this.#lost += lost + lines.length;
      if (!this.#isFailing)
        this.#log.error({ err: error, path: this.#path }, "cannot write the audit log; lines are lost until it works again");
      this.#isFailing = true;
    }
  }
}

function openForAppend(path: string): Promise<FileHandle> {
  return open(path, "a", 0o600);
}

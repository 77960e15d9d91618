// Who did what: one JSON line for each request and each connection of a sandbox, appended to a file in the order of their ends.

import { open } from "node:fs/promises";
import { ForkdError, messageOf } from "../errors.ts";
import type { FileHandle } from "node:fs/promises";
import type { Logger } from "./log.ts";

const MAX_QUEUED = 10_000;
const MAX_TEXT = 256;
/** how long a line may wait for others: a write of its own for each costs more than all else that a small request needs */
const GATHER_MS = 20;

export type AuditEntry = {
  request_id: string;
  /** null: nobody was recognised */
  principal: string | null;
  remote: string;
  method: string;
  /** without the query, which may hold what is none of our business */
  path: string;
  sandbox: string | null;
  snapshot: string | null;
  status: number;
  latency_us: number;
  user_agent: string | null;
};

export type ConnectionEntry = {
  connection: "opened" | "refused" | "ended";
  /** null: the snapshot was just being made */
  sandbox: string | null;
  snapshot: string;
  /** who made the sandbox */
  principal: string | null;
  name: string | null;
  ip: string | null;
  port: number | null;
  decision: "allowed" | "refused";
  reason: string;
  error: string | null;
  bytes_up: number;
  bytes_down: number;
  ms: number;
};

/** Requests never wait for it. What could not be written is counted, and the count is the next line that can be */
export class AuditLog implements AsyncDisposable {
  readonly #path: string;
  readonly #log: Logger;
  readonly #maxQueued: number;
  #file: FileHandle;
  #queue: string[] = [];
  #lost = 0;
  #isFailing = false;
  /** writing and reopening happen one after the other */
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
    const bounded =
      "path" in entry ? { ...entry, path: entry.path.slice(0, MAX_TEXT), user_agent: entry.user_agent?.slice(0, MAX_TEXT) ?? null } : entry;
    this.#queue.push(`${JSON.stringify({ time: new Date().toISOString(), ...bounded })}\n`);
    this.#timer ??= setTimeout(() => this.#writeNow(), GATHER_MS);
  }

  /** After the file was moved away: goes on in a new one of the same name */
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

  /** Everything written so far is in the file when this returns */
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

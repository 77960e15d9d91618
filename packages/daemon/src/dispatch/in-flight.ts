// Registry of requests in progress: a stopping daemon waits for them and aborts the slow ones.

import type { Identity, Via } from "../store/tokens.ts";

/** Access methods that use a sandbox's access token or a signature made with it */
const BY_ACCESS_TOKEN: ReadonlySet<Via | undefined> = new Set<Via>(["envd", "signature", "traffic"]);

/** A request in progress; `identity` is set on admission */
type Asked = { readonly controller: AbortController; readonly identity: Pick<Identity, "name" | "via" | "opens" | "session"> | null };

export class InFlight {
  /** per request, the number of open parts: its connection, and its work, which may outlive the connection */
  readonly #parts = new Map<Asked, number>();
  #waiting: (() => void)[] = [];
  #lastMs = Date.now();

  get count(): number {
    return this.#parts.size;
  }

  /** Time at which the last request ended */
  get lastMs(): number {
    return this.count > 0 ? Date.now() : this.#lastMs;
  }

  enter(asked: Asked): void {
    this.#parts.set(asked, (this.#parts.get(asked) ?? 0) + 1);
  }

  leave(asked: Asked): void {
    const left = (this.#parts.get(asked) ?? 0) - 1;
    if (left > 0) {
      this.#parts.set(asked, left);
      return;
    }
    this.#parts.delete(asked);
    if (this.count > 0) return;
    this.#lastMs = Date.now();
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async run<V>(asked: Asked, work: () => Promise<V>): Promise<V> {
    this.enter(asked);
    try {
      return await work();
    } finally {
      this.leave(asked);
    }
  }

  /** Whether requests other than the one with this signal are in progress */
  hasOthers(own: AbortSignal): boolean {
    return this.#parts.keys().some(({ controller }) => controller.signal !== own);
  }

  abortAll(reason: Error): void {
    for (const { controller } of this.#parts.keys()) controller.abort(reason);
  }

  /** Aborts all requests of the principal, streams included. One whose work is done, such as the calling one, responds */
  abortOf(principal: string, reason: Error): void {
    for (const { controller, identity } of this.#parts.keys()) if (identity?.name === principal) controller.abort(reason);
  }

  /** Aborts all requests that were authenticated by access tokens of the sandbox */
  abortOpened(sandbox: string, reason: Error): void {
    for (const { controller, identity } of this.#parts.keys())
      if (identity?.opens === sandbox && BY_ACCESS_TOKEN.has(identity.via)) controller.abort(reason);
  }

  /** Aborts all requests of a session of the dashboard */
  abortSession(session: string, reason: Error): void {
    for (const { controller, identity } of this.#parts.keys()) if (identity?.session === session) controller.abort(reason);
  }

  /** Resolves to true if all requests end before the timeout */
  async idle(timeoutMs: number): Promise<boolean> {
    if (this.count === 0) return true;
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([timeout, new Promise<void>((resolve) => void this.#waiting.push(resolve))]);
    clearTimeout(timer);
    return this.count === 0;
  }
}

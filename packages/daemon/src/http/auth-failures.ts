// Wrong tokens by address: after too many, nobody from there gets an answer for a while, so that guessing is useless.

import { isIPv6 } from "node:net";

const MAX_FAILURES = 10;
const WINDOW_MS = 60_000;
const MAX_ADDRESSES = 10_000;

type Entry = { count: number; sinceMs: number };

export class AuthFailures {
  readonly #byAddress = new Map<string, Entry>();
  readonly #nowMs: () => number;

  constructor(opts: { nowMs?: () => number } = {}) {
    this.#nowMs = opts.nowMs ?? (() => performance.now());
  }

  /** How long this address has to wait; 0: it need not */
  blockedMs(remote: string): number {
    const entry = this.#byAddress.get(network(remote));
    if (!entry || entry.count < MAX_FAILURES) return 0;
    return Math.max(0, entry.sinceMs + WINDOW_MS - this.#nowMs());
  }

  add(remote: string): void {
    const address = network(remote);
    const now = this.#nowMs();
    const entry = this.#byAddress.get(address);
    if (entry && now - entry.sinceMs < WINDOW_MS) {
      entry.count++;
      return;
    }
    this.#byAddress.delete(address);
    this.#byAddress.set(address, { count: 1, sinceMs: now });
    this.#forget(now);
  }

  /** Oldest first: a map keeps the order of insertion */
  #forget(now: number): void {
    for (const [address, entry] of this.#byAddress) {
      if (this.#byAddress.size <= MAX_ADDRESSES && now - entry.sinceMs < WINDOW_MS) return;
      this.#byAddress.delete(address);
    }
  }
}

/** One host usually has all of an IPv6 /64 */
function network(remote: string): string {
  if (!isIPv6(remote) || remote.startsWith("::ffff:")) return remote;
  const [head = "", tail] = remote.split("::");
  const groups = head.split(":").filter(Boolean);
  const last = tail === undefined ? [] : tail.split(":").filter(Boolean);
  const zeros = tail === undefined ? 0 : 8 - groups.length - last.length;
  return [...groups, ...Array<string>(Math.max(0, zeros)).fill("0"), ...last].slice(0, 4).join(":");
}

// Failed authentications per address: too many block the address for a minute, which prevents guessing.

import { isIPv6 } from "node:net";

const MAX_FAILURES = 10;
const WINDOW_MS = 60_000;
const MAX_ADDRESSES = 10_000;

type Entry = { count: number; sinceMs: number };

export class AuthFailures {
  readonly #byAddress = new Map<string, Entry>();
  readonly #max: number;
  readonly #nowMs: () => number;

  constructor(opts: { max?: number; nowMs?: () => number } = {}) {
    this.#max = opts.max ?? MAX_FAILURES;
    this.#nowMs = opts.nowMs ?? (() => performance.now());
  }

  /** Remaining block time of the address; 0: not blocked. Each `place` has a separate counter */
  blockedMs(remote: string, place = ""): number {
    const entry = this.#byAddress.get(keyOf(remote, place));
    if (!entry || entry.count < this.#max) return 0;
    return Math.max(0, entry.sinceMs + WINDOW_MS - this.#nowMs());
  }

  add(remote: string, place = ""): void {
    const address = keyOf(remote, place);
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

  /** Removes the oldest entries first: a Map iterates in insertion order */
  #forget(now: number): void {
    for (const [address, entry] of this.#byAddress) {
      if (this.#byAddress.size <= MAX_ADDRESSES && now - entry.sinceMs < WINDOW_MS) return;
      this.#byAddress.delete(address);
    }
  }
}

function keyOf(remote: string, place: string): string {
  return `${network(remote)} ${place}`;
}

/** IPv6 is counted per /64, because one host usually owns the whole /64 */
function network(remote: string): string {
  if (!isIPv6(remote) || remote.startsWith("::ffff:")) return remote;
  const [head = "", tail] = remote.split("::");
  const groups = head.split(":").filter(Boolean);
  const last = tail === undefined ? [] : tail.split(":").filter(Boolean);
  const zeros = tail === undefined ? 0 : 8 - groups.length - last.length;
  return [...groups, ...Array<string>(Math.max(0, zeros)).fill("0"), ...last].slice(0, 4).join(":");
}

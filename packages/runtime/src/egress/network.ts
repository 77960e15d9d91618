// State shared by the egress of all sandboxes: resolver, host addresses, connection observers.

import { readFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { formatAddress, parseAddress, sameAddress, specialRangeOf, type Address } from "./addresses.ts";
import { Names, type NamesOptions } from "./names.ts";
import type { ConnectionRecord } from "./outgoing.ts";

const LOOK_AGAIN_MS = 1000;

/** Owner of a connection: a sandbox, or a snapshot during its warm-up */
export type Owner = { sandbox: string | null; snapshot: string };

export type ConnectionEvent = "opened" | "refused" | "ended";

export type NetworkOptions = NamesOptions & {
  onConnection?: (owner: Owner, event: ConnectionEvent, record: ConnectionRecord) => void;
  /** called before more bytes are sent than it was called with so far; only with an egress limit */
  onSpent?: (owner: Owner, bytes: number) => void;
  /** called with bytes that are about to be sent; false: they must not be */
  maySend?: (owner: Owner, bytes: number) => boolean;
};

export class Network {
  readonly names: Names;
  readonly onConnection: NonNullable<NetworkOptions["onConnection"]>;
  readonly onSpent: NonNullable<NetworkOptions["onSpent"]>;
  readonly maySend: NonNullable<NetworkOptions["maySend"]>;
  readonly #listeners: { address: Address | undefined; port: number }[] = [];
  #own = new Set<string>();
  #lookedAt = -Infinity;
  readonly #most = Math.floor(openFilesLimit() / 2);
  /** number of connections of all sandboxes */
  open = 0;

  constructor(opts: NetworkOptions = {}) {
    this.names = new Names(opts);
    this.onConnection = opts.onConnection ?? (() => undefined);
    this.onSpent = opts.onSpent ?? (() => undefined);
    this.maySend = opts.maySend ?? (() => true);
  }

  /** Whether another connection is allowed: half of the process's file descriptors are reserved for other uses */
  get hasRoom(): boolean {
    return this.open < this.#most;
  }

  /** Whether it is an address of this host */
  isOwn(address: Address): boolean {
    const now = performance.now();
    if (now - this.#lookedAt > LOOK_AGAIN_MS) {
      const own = ownAddresses();
      // when the list cannot be read, refuse
      if (!own) return true;
      this.#lookedAt = now;
      this.#own = own;
    }
    return this.#own.has(formatAddress(address));
  }

  /** Addresses on which the daemon listens; no rule allows them, because the API there controls the sandboxes */
  reserve(host: string, port: number): void {
    // a name or a wildcard address means all addresses of the host
    const address = parseAddress(host);
    this.#listeners.push({ address: address && address.value !== 0n ? address : undefined, port });
  }

  isReserved(target: Address, port: number): boolean {
    const isLocal = (): boolean => this.isOwn(target) || specialRangeOf(target)?.kind === "loopback";
    return this.#listeners.some(({ address, port: own }) => own === port && (address ? sameAddress(address, target) : isLocal()));
  }
}

function ownAddresses(): Set<string> | undefined {
  try {
    const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    return new Set(all.flatMap((one) => parseAddress(one.address) ?? []).map(formatAddress));
  } catch (error) {
    // no file descriptor left for the query
    if ((error as NodeJS.ErrnoException).code === "ERR_SYSTEM_ERROR") return undefined;
    throw error;
  }
}

function openFilesLimit(): number {
  const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
  return soft === undefined ? Infinity : Number(soft);
}

// What the ways out of all sandboxes share: names, the host's own addresses, and who hears of connections.

import { networkInterfaces } from "node:os";
import { formatAddress, parseAddress, sameAddress, specialRangeOf, type Address } from "./addresses.ts";
import { Names, type NamesOptions } from "./names.ts";
import type { ConnectionRecord } from "./outgoing.ts";

const LOOK_AGAIN_MS = 1000;

/** Whose connection it is: a sandbox's, or that of a snapshot which is just being warmed up */
export type Owner = { sandbox: string | null; snapshot: string };

export type ConnectionEvent = "opened" | "refused" | "ended";

export type NetworkOptions = NamesOptions & {
  onConnection?: (owner: Owner, event: ConnectionEvent, record: ConnectionRecord) => void;
  /** hears before more bytes may leave than it was told of so far; only where there is a limit */
  onSpent?: (owner: Owner, bytes: number) => void;
};

export class Network {
  readonly names: Names;
  readonly onConnection: NonNullable<NetworkOptions["onConnection"]>;
  readonly onSpent: NonNullable<NetworkOptions["onSpent"]>;
  readonly #listeners: { address: Address | undefined; port: number }[] = [];
  #own = new Set<string>();
  #lookedAt = -Infinity;

  constructor(opts: NetworkOptions = {}) {
    this.names = new Names(opts);
    this.onConnection = opts.onConnection ?? (() => undefined);
    this.onSpent = opts.onSpent ?? (() => undefined);
  }

  /** Whether it is an address of this host */
  isOwn(address: Address): boolean {
    const now = performance.now();
    if (now - this.#lookedAt > LOOK_AGAIN_MS) {
      this.#lookedAt = now;
      const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
      this.#own = new Set(all.flatMap((one) => parseAddress(one.address) ?? []).map(formatAddress));
    }
    return this.#own.has(formatAddress(address));
  }

  /** No rule leads there: it is where the sandboxes themselves are ruled from */
  reserve(host: string, port: number): void {
    // a name or a wildcard stands for any of the host's addresses
    const address = parseAddress(host);
    this.#listeners.push({ address: address && address.value !== 0n ? address : undefined, port });
  }

  isReserved(target: Address, port: number): boolean {
    const isLocal = (): boolean => this.isOwn(target) || specialRangeOf(target)?.kind === "loopback";
    return this.#listeners.some(({ address, port: own }) => own === port && (address ? sameAddress(address, target) : isLocal()));
  }
}

// DNS names: current and recent addresses, as the host resolves them.

import { Resolver } from "node:dns/promises";
import { createSocket } from "node:dgram";
import { formatAddress, parseAddress, specialRangeOf, type Address } from "./addresses.ts";
import { FairSemaphore } from "../util/fair-semaphore.ts";
import { mxAnswer, srvAnswer, txtAnswer, TYPE, type Answer } from "./dns.ts";

const TIMEOUT_MS = 2000;
const TRIES = 2;
/** interval at which the host's resolver settings are read again */
const SETTINGS_MS = 60_000;
const MAX_TTL_SECS = 300;
const NEGATIVE_SECS = 5;
const OTHER_TTL_SECS = 60;
/** how long an earlier address of a name stays valid: programs cache addresses */
const REMEMBER_MS = 3_600_000;
/** cached answers of all sandboxes; a dropped one is looked up again */
const MAX_CACHED = 10_000;
/** addresses per name */
const MAX_ADDRESSES = 64;
/** remembered pairs of name and address per sandbox, and number of sandboxes */
const MAX_PAIRS = 1024;
const MAX_OWNERS = 2000;
/**
 * concurrent lookups of one sandbox, those guaranteed to each, and the places that all share for the others. Those without a
 * place wait in a queue per group, and the queues take turns
 */
const MAX_LOOKUPS = 512;
const MAX_OWN_LOOKUPS = 128;
const SURE_LOOKUPS = 8;
const ANY_PORT = 9;

export type Lookup = {
  /** "missing": the name does not exist; "failed": no server answered */
  status: "ok" | "missing" | "failed";
  addresses: readonly Address[];
  ttl: number;
};

/** The used part of Node's resolver; tests have their own */
export type Upstream = Pick<Resolver, "resolve4" | "resolve6" | "resolveMx" | "resolveSrv" | "resolveTxt">;

export type NamesOptions = {
  /** IP or IP:PORT of each server; null: the host's */
  servers?: readonly string[] | null;
  upstream?: Upstream;
  isRoutable?: (address: Address) => Promise<boolean>;
  /** the group whose queue an owner's lookups wait in; default: one for all */
  groupOf?: (owner: string) => string;
};

type Cached = { lookup: Promise<Lookup>; until: number };

export class Names {
  readonly #opts: NamesOptions;
  #upstream: { resolver: Upstream; until: number } | undefined;
  readonly #cache = new Map<string, Cached>();
  /** owner → name and address → last seen; the oldest lookup is first. An owner's entries displace only its own */
  readonly #seen = new Map<string, Map<string, number>>();
  /** lookups by owner; an owner without any has no entry */
  readonly #underWay = new Map<string, number>();
  readonly #shared = new FairSemaphore(MAX_LOOKUPS);

  constructor(opts: NamesOptions = {}) {
    this.#opts = opts;
  }

  /** The addresses of a name that this host can reach; remembered for the owner */
  async lookup(owner: string, name: string, family: 4 | 6): Promise<Lookup> {
    const lookup = await this.#cached(owner, name, family);
    this.#remember(owner, name, lookup.addresses);
    return lookup;
  }

  /** Whether the name resolved to the address in the last hour, for any owner: a fork uses addresses that its source resolved */
  knows(owner: string, name: string, address: Address): boolean {
    const pair = pairOf(name, address);
    const since = performance.now() - REMEMBER_MS;
    const isIn = (seen: Map<string, number> | undefined): boolean => (seen?.get(pair) ?? -Infinity) > since;
    return isIn(this.#seen.get(owner)) || [...this.#seen.values()].some(isIn);
  }

  /** The same, or the name resolves to it now */
  async leadsTo(owner: string, name: string, address: Address): Promise<boolean> {
    if (this.knows(owner, name, address)) return true;
    await this.lookup(owner, name, address.family);
    return this.knows(owner, name, address);
  }

  /** Records of other types; null: no server answered */
  async records(owner: string, name: string, type: number): Promise<Answer[] | null> {
    const resolver = this.#resolver();
    const ask = async <V>(work: () => Promise<V>): Promise<V> => this.#counted(owner, work);
    if (!this.#hasPlace(owner)) return null;
    try {
      if (type === TYPE.TXT) return (await ask(async () => resolver.resolveTxt(name))).map((txt) => txtAnswer(txt, OTHER_TTL_SECS));
      if (type === TYPE.MX) return (await ask(async () => resolver.resolveMx(name))).flatMap((mx) => mxAnswer(mx, OTHER_TTL_SECS) ?? []);
      if (type === TYPE.SRV)
        return (await ask(async () => resolver.resolveSrv(name))).flatMap((srv) => srvAnswer(srv, OTHER_TTL_SECS) ?? []);
      return [];
    } catch (error) {
      return isNegative(error) ? [] : null;
    }
  }

  async #cached(owner: string, name: string, family: 4 | 6): Promise<Lookup> {
    const key = `${family} ${name}`;
    const known = this.#cache.get(key);
    if (known && known.until > performance.now()) return known.lookup;
    // not cached, because another sandbox would get it
    if (!this.#hasPlace(owner)) return { status: "failed", addresses: [], ttl: 0 };
    const entry: Cached = { lookup: this.#counted(owner, async () => this.#ask(name, family)), until: Infinity };
    this.#cache.set(key, entry);
    prune(this.#cache, MAX_CACHED);
    const lookup = await entry.lookup;
    entry.until = performance.now() + (lookup.status === "failed" ? 0 : lookup.ttl * 1000);
    return lookup;
  }

  async #ask(name: string, family: 4 | 6): Promise<Lookup> {
    const resolver = this.#resolver();
    try {
      const found = await (family === 4 ? resolver.resolve4(name, { ttl: true }) : resolver.resolve6(name, { ttl: true }));
      const addresses = found.flatMap(({ address }) => parseAddress(address) ?? []).slice(0, MAX_ADDRESSES);
      const ttl = Math.min(MAX_TTL_SECS, ...found.map((record) => Math.max(1, record.ttl)));
      return { status: "ok", addresses: await this.#reachable(addresses), ttl };
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      const status = code === "ENOTFOUND" ? "missing" : code === "ENODATA" ? "ok" : "failed";
      return { status, addresses: [], ttl: NEGATIVE_SECS };
    }
  }

  /** Leaves out unreachable addresses: forkd accepts a connection before it is established, so programs cannot fall back to another address */
  async #reachable(addresses: readonly Address[]): Promise<Address[]> {
    const isRoutable = this.#opts.isRoutable ?? hasRoute;
    const routable = await Promise.all(addresses.map(isRoutable));
    return addresses.filter((_, at) => routable[at]);
  }

  #remember(owner: string, name: string, addresses: readonly Address[]): void {
    if (addresses.length === 0) return;
    const seen = this.#seen.get(owner) ?? new Map<string, number>();
    for (const address of addresses) {
      const pair = pairOf(name, address);
      seen.delete(pair);
      seen.set(pair, performance.now());
    }
    prune(seen, MAX_PAIRS);
    this.#seen.delete(owner);
    this.#seen.set(owner, seen);
    prune(this.#seen, MAX_OWNERS);
  }

  #hasPlace(owner: string): boolean {
    return (this.#underWay.get(owner) ?? 0) < MAX_OWN_LOOKUPS;
  }

  async #counted<V>(owner: string, work: () => Promise<V>): Promise<V> {
    const isSure = (this.#underWay.get(owner) ?? 0) < SURE_LOOKUPS;
    this.#count(owner, 1);
    try {
      return await (isSure ? work() : this.#shared.run(this.#opts.groupOf?.(owner) ?? "", work));
    } finally {
      this.#count(owner, -1);
    }
  }

  #count(owner: string, change: 1 | -1): void {
    const own = (this.#underWay.get(owner) ?? 0) + change;
    if (own > 0) this.#underWay.set(owner, own);
    else this.#underWay.delete(owner);
  }

  #resolver(): Upstream {
    if (this.#opts.upstream) return this.#opts.upstream;
    const now = performance.now();
    if (this.#upstream && this.#upstream.until > now) return this.#upstream.resolver;
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
    if (this.#opts.servers) resolver.setServers(this.#opts.servers);
    this.#upstream = { resolver, until: now + SETTINGS_MS };
    return resolver;
  }
}

/** Queries the host's routing table; sends nothing */
async function hasRoute(address: Address): Promise<boolean> {
  // Programs do not connect to these by name; the answer would only reveal the host's networks.
  if (specialRangeOf(address)) return true;
  const socket = createSocket(address.family === 4 ? "udp4" : "udp6");
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once("error", reject).once("connect", resolve);
      socket.connect(ANY_PORT, formatAddress(address));
    });
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENETUNREACH" || code === "EHOSTUNREACH" || code === "EADDRNOTAVAIL" || code === "EAFNOSUPPORT" || code === "EINVAL")
      return false;
    throw error;
  } finally {
    socket.close();
  }
}

function pairOf(name: string, address: Address): string {
  return `${name} ${formatAddress(address)}`;
}

function isNegative(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOTFOUND" || code === "ENODATA";
}

function prune(map: Map<string, unknown>, most: number): void {
  for (const key of map.keys()) {
    if (map.size <= most) return;
    map.delete(key);
  }
}

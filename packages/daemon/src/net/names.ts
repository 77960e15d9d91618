// Names as the host resolves them: what they lead to now, and what they led to lately.

import { Resolver } from "node:dns/promises";
import { createSocket } from "node:dgram";
import { formatAddress, parseAddress, specialRangeOf, type Address } from "./addresses.ts";
import { mxAnswer, srvAnswer, txtAnswer, TYPE, type Answer } from "./dns.ts";

const TIMEOUT_MS = 2000;
const TRIES = 2;
/** the host's own settings are read again so often */
const SETTINGS_MS = 60_000;
const MAX_TTL_SECS = 300;
const NEGATIVE_SECS = 5;
const OTHER_TTL_SECS = 60;
/** how long an address that a name led to is still taken for one of it: programs keep addresses */
const REMEMBER_MS = 3_600_000;
const MAX_NAMES = 10_000;
const MAX_ADDRESSES = 64;
const MAX_LOOKUPS = 512;
const ANY_PORT = 9;

export type Lookup = {
  /** "missing": there is no such name; "failed": nobody could tell */
  status: "ok" | "missing" | "failed";
  addresses: readonly Address[];
  ttl: number;
};

/** The part of node's resolver that is used; tests have their own */
export type Upstream = Pick<Resolver, "resolve4" | "resolve6" | "resolveMx" | "resolveSrv" | "resolveTxt">;

export type NamesOptions = {
  /** IP or IP:PORT of each server; null: those of the host */
  servers?: readonly string[] | null;
  upstream?: Upstream;
  isRoutable?: (address: Address) => Promise<boolean>;
};

type Cached = { lookup: Promise<Lookup>; until: number };

export class Names {
  readonly #opts: NamesOptions;
  #upstream: { resolver: Upstream; until: number } | undefined;
  readonly #cache = new Map<string, Cached>();
  /** name → address → when it was last seen; the name that was asked for longest ago is first */
  readonly #seen = new Map<string, Map<string, number>>();
  #underWay = 0;

  constructor(opts: NamesOptions = {}) {
    this.#opts = opts;
  }

  /** The addresses of a name that this host could reach */
  async lookup(name: string, family: 4 | 6): Promise<Lookup> {
    const key = `${family} ${name}`;
    const known = this.#cache.get(key);
    if (known && known.until > performance.now()) return known.lookup;
    const entry: Cached = { lookup: this.#ask(name, family), until: Infinity };
    this.#cache.set(key, entry);
    prune(this.#cache, MAX_NAMES);
    const lookup = await entry.lookup;
    entry.until = performance.now() + (lookup.status === "failed" ? 0 : lookup.ttl * 1000);
    this.#remember(name, lookup.addresses);
    return lookup;
  }

  /** Whether the name was found to lead to the address in the last hour */
  knows(name: string, address: Address): boolean {
    return (this.#seen.get(name)?.get(formatAddress(address)) ?? -Infinity) > performance.now() - REMEMBER_MS;
  }

  /** The same, or it does now */
  async leadsTo(name: string, address: Address): Promise<boolean> {
    if (this.knows(name, address)) return true;
    await this.lookup(name, address.family);
    return this.knows(name, address);
  }

  /** Records of other types; null: nobody could tell */
  async records(name: string, type: number): Promise<Answer[] | null> {
    const resolver = this.#resolver();
    try {
      if (type === TYPE.TXT) return (await this.#bounded(async () => resolver.resolveTxt(name))).map((t) => txtAnswer(t, OTHER_TTL_SECS));
      if (type === TYPE.MX) return (await this.#bounded(async () => resolver.resolveMx(name))).map((mx) => mxAnswer(mx, OTHER_TTL_SECS));
      if (type === TYPE.SRV) return (await this.#bounded(async () => resolver.resolveSrv(name))).map((s) => srvAnswer(s, OTHER_TTL_SECS));
      return [];
    } catch (error) {
      return isNegative(error) ? [] : null;
    }
  }

  async #ask(name: string, family: 4 | 6): Promise<Lookup> {
    const resolver = this.#resolver();
    try {
      const found = await this.#bounded(async () =>
        family === 4 ? resolver.resolve4(name, { ttl: true }) : resolver.resolve6(name, { ttl: true }),
      );
      const addresses = found.flatMap(({ address }) => parseAddress(address) ?? []).slice(0, MAX_ADDRESSES);
      const ttl = Math.min(MAX_TTL_SECS, ...found.map((record) => Math.max(1, record.ttl)));
      return { status: "ok", addresses: await this.#reachable(addresses), ttl };
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      const status = code === "ENOTFOUND" ? "missing" : code === "ENODATA" ? "ok" : "failed";
      return { status, addresses: [], ttl: NEGATIVE_SECS };
    }
  }

  /** A program whose connection is taken before it stands cannot fall back to another address, so it gets none that is of no use */
  async #reachable(addresses: readonly Address[]): Promise<Address[]> {
    const isRoutable = this.#opts.isRoutable ?? hasRoute;
    const routable = await Promise.all(addresses.map(isRoutable));
    return addresses.filter((_, at) => routable[at]);
  }

  #remember(name: string, addresses: readonly Address[]): void {
    if (addresses.length === 0) return;
    const seen = this.#seen.get(name) ?? new Map<string, number>();
    for (const address of addresses) {
      seen.delete(formatAddress(address));
      seen.set(formatAddress(address), performance.now());
    }
    prune(seen, MAX_ADDRESSES);
    this.#seen.delete(name);
    this.#seen.set(name, seen);
    prune(this.#seen, MAX_NAMES);
  }

  async #bounded<V>(work: () => Promise<V>): Promise<V> {
    if (this.#underWay >= MAX_LOOKUPS) throw new Error("too many lookups are under way");
    this.#underWay++;
    try {
      return await work();
    } finally {
      this.#underWay--;
    }
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

/** Asks the host's routing table; nothing is sent */
async function hasRoute(address: Address): Promise<boolean> {
  // those are not connected to by name; asking would only tell what the host has
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

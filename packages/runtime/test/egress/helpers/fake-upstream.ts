// A resolver with the test's own records.

import type { Upstream } from "../../../src/egress/names.ts";

/** Lists of addresses, used in order; the last one repeats */
type Entry = { A?: string[][]; AAAA?: string[][]; TXT?: string[]; ttl?: number; fails?: string };

export class FakeUpstream {
  readonly records: Record<string, Entry>;
  readonly asked: string[] = [];
  #held: Promise<void> | undefined;

  constructor(records: Record<string, Entry>) {
    this.records = records;
  }

  /** Holds all answers until the returned function is called */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held = promise;
    return resolve;
  }

  resolve4 = (async (name: string) => this.#addresses(name, "A")) as unknown as Upstream["resolve4"];
  resolve6 = (async (name: string) => this.#addresses(name, "AAAA")) as unknown as Upstream["resolve6"];
  resolveTxt: Upstream["resolveTxt"] = async (name) => [(await this.#entry(name, "TXT")).TXT ?? fail("ENODATA")];
  resolveMx = (async (name: string) => (await this.#entry(name, "MX")) && fail("ENODATA")) as unknown as Upstream["resolveMx"];
  resolveSrv = (async (name: string) => (await this.#entry(name, "SRV")) && fail("ENODATA")) as unknown as Upstream["resolveSrv"];

  async #addresses(name: string, type: "A" | "AAAA"): Promise<{ address: string; ttl: number }[]> {
    const entry = await this.#entry(name, type);
    const lists = entry[type] ?? [];
    const list = lists.length > 1 ? lists.shift() : lists[0];
    if (!list) return fail("ENODATA");
    return list.map((address) => ({ address, ttl: entry.ttl ?? 60 }));
  }

  async #entry(name: string, type: string): Promise<Entry> {
    this.asked.push(`${type} ${name}`);
    await this.#held;
    const entry = this.records[name] ?? fail("ENOTFOUND");
    return entry.fails ? fail(entry.fails) : entry;
  }
}

function fail(code: string): never {
  throw Object.assign(new Error(code), { code });
}

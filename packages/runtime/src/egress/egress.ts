// Egress of one sandbox: decides every connection and every DNS query, without trust in the guest.

import { Reader, Writer } from "../util/codec.ts";
import type { AgentConnection, Incoming } from "../agent/wire/connection.ts";
import { DIAL_WINDOW, T } from "../agent/wire/protocol.ts";
import { formatAddress, parseAddress, type Address } from "./addresses.ts";
import { answerQuery, HOST_IP, HOST_NAME, LOOPBACK, type Reply } from "./answers.ts";
import { Bucket } from "./bucket.ts";
import { TCP_LIMIT, UDP_LIMIT } from "./dns.ts";
import { serveDns } from "./dns-stream.ts";
import type { Network, Owner } from "./network.ts";
import { Outgoing, type ConnectionRecord } from "./outgoing.ts";
import { normalName, Rules, type NetworkPolicy } from "./policy.ts";

const MAX_CONNECTIONS = 512;
/** number of connections with large buffers */
const MAX_WIDE = 64;
const MAX_QUERIES = 256;
const MAX_DNS_STREAMS = 64;
const MAX_RECENT = 100;
const MAX_HINTS = 8;
/** maximum size of a DIAL; a larger one would take milliseconds to parse, for each frame of a flood */
const MAX_NAMES = 64;
const MAX_ANSWERED = 1024;
const DNS_PORT = 53;
const MAX_PORT = 65_535;
/** bursts of connections and lookups, and their rates per second */
const CONNECTIONS = { most: 1024, perSecond: 200 };
/** rate limit for records of refused connections */
const REFUSALS = { most: 100, perSecond: 10 };
const LOOKUPS = { most: 1000, perSecond: 100 };
/** a refused name is recorded again after this time: programs ask several times in a row */
const SAME_NAME_MS = 10_000;
const LEASE = { steps: 64, least: 64 * 1024, most: 16 * 1024 * 1024 };

export type EgressStats = {
  open: number;
  total: number;
  refused: number;
  bytesUp: number;
  bytesDown: number;
  /** newest first */
  recent: ConnectionRecord[];
};

export class Egress {
  readonly #network: Network;
  readonly #owner: Owner;
  /** owner of the remembered names */
  readonly #asker: string;
  readonly #open = new Set<Outgoing>();
  readonly #connections = new Bucket(CONNECTIONS.most, CONNECTIONS.perSecond);
  readonly #refusals = new Bucket(REFUSALS.most, REFUSALS.perSecond);
  readonly #lookups = new Bucket(LOOKUPS.most, LOOKUPS.perSecond);
  readonly #refusedNames = new Map<string, number>();
  /** names that this sandbox resolved to an address; its agent remembers longer, and across forks */
  readonly #answered = new Map<string, string[]>();
  #policy: NetworkPolicy;
  #rules: Rules;
  #recent: ConnectionRecord[] = [];
  #counts = { total: 0, refused: 0, bytesUp: 0, bytesDown: 0 };
  /** pending connections, queries, and DNS connections over TCP */
  #pending = 0;
  #queries = 0;
  #dnsStreams = 0;
  /** bytes sent, and bytes journaled as sent */
  #spent: number;
  #leased: number;

  constructor(agent: AgentConnection, opts: { network: Network; owner: Owner; policy: NetworkPolicy; spent?: number | undefined }) {
    this.#network = opts.network;
    this.#owner = opts.owner;
    this.#asker = opts.owner.sandbox ?? opts.owner.snapshot;
    this.#policy = opts.policy;
    this.#rules = new Rules(opts.policy);
    this.#spent = opts.spent ?? 0;
    this.#leased = this.#spent;
    agent.accept((incoming) => {
      if (incoming.type === T.DIAL) this.#dial(incoming);
      else void this.#resolve(incoming, Buffer.from(new Reader(incoming.payload).bytes()));
    });
  }

  get policy(): NetworkPolicy {
    return this.#policy;
  }

  /** Bytes sent so far; after a restart of the daemon it may be slightly too high */
  get spent(): number {
    return this.#spent;
  }

  get leased(): number {
    return this.#leased;
  }

  get stats(): EgressStats {
    const now = Date.now();
    const recent = this.#recent.map((record) => ({ ...record, ms: record.open ? now - record.time.getTime() : record.ms }));
    return { ...this.#counts, open: this.#open.size, recent };
  }

  /** Replaces the policy and closes open connections that the new one does not allow */
  set(policy: NetworkPolicy): void {
    this.#policy = policy;
    this.#rules = new Rules(policy);
    this.#leased = this.#spent;
    this.#refusedNames.clear();
    for (const connection of this.#open) {
      const decision = this.#rules.decide(connection.target);
      if (!decision.allowed) connection.cut(`the policy was changed: ${decision.reason}`);
      else if (this.#isSpent) connection.cut(SPENT);
    }
  }

  #dial(incoming: Incoming): void {
    const reader = new Reader(incoming.payload);
    const said = reader.str();
    const port = reader.u32();
    const isHost = said === HOST_IP && port !== DNS_PORT;
    const address = isHost ? LOOPBACK : parseAddress(said);
    if (!address || port < 1 || port > MAX_PORT) return incoming.refuse("EINVAL", "not an address");
    const hasRoom = this.#open.size + this.#pending < MAX_CONNECTIONS && this.#network.hasRoom;
    if (!hasRoom || !this.#connections.take()) {
      this.#counts.refused++;
      return incoming.refuse("EAGAIN", "too many connections");
    }
    if (port === DNS_PORT && this.#rules.mode !== "none") return this.#serveDns(incoming);
    const hints = reader.list((item) => item.str(), MAX_NAMES);
    const record = { ...BLANK, time: new Date(), name: isHost ? HOST_NAME : null, ip: formatAddress(address), port };
    void this.#connect(incoming, address, record, this.#namesOf(said, hints));
  }

  async #connect(incoming: Incoming, address: Address, record: ConnectionRecord & { port: number }, hints: string[]): Promise<void> {
    const { port } = record;
    const isOwn = this.#network.isOwn(address);
    const target = { address, port, names: [] as string[], isOwn };
    const outgoing: Outgoing = new Outgoing({
      target,
      record,
      spend: (bytes) => this.#spend(bytes),
      onDown: (bytes) => (this.#counts.bytesDown += bytes),
      isWide: () => this.#open.size <= MAX_WIDE,
      onConnected: (socket) => this.#connected(outgoing, socket.localAddress === socket.remoteAddress),
      onEnd: () => {
        this.#open.delete(outgoing);
        this.#network.open--;
        if (record.decision === "allowed") this.#network.onConnection(this.#owner, "ended", { ...record });
      },
    });
    const stream = incoming.open({
      window: DIAL_WINDOW,
      onData: (_channel, bytes) => outgoing.up(bytes),
      onEof: () => outgoing.endUp(),
    });
    this.#pending++;
    try {
      target.names = await this.#verified(hints, address, port);
    } finally {
      this.#pending--;
    }
    if (stream.isOver) return; // the program has closed the connection
    const decision = this.#network.isReserved(address, port) ? RESERVED : this.#rules.decide(target);
    const isAllowed = decision.allowed && !this.#isSpent;
    record.reason = decision.allowed && this.#isSpent ? SPENT : decision.reason;
    record.name ??= (decision.allowed ? decision.name : target.names[0]) ?? hints[0] ?? null;
    if (!isAllowed) {
      stream.refuse("EACCES", record.reason);
      return this.#refused(record);
    }
    record.decision = "allowed";
    record.open = true;
    this.#counts.total++;
    this.#note(record);
    this.#open.add(outgoing);
    this.#network.open++;
    outgoing.start(stream);
  }

  /** Connected; refused if the peer turns out to be this host, through an address that no interface shows */
  #connected(outgoing: Outgoing, isLocal: boolean): boolean {
    const { record, target } = outgoing;
    const decision = this.#rules.decide({ ...target, isOwn: target.isOwn || isLocal });
    if (decision.allowed) {
      this.#network.onConnection(this.#owner, "opened", { ...record });
      return true;
    }
    Object.assign(record, { decision: "refused", reason: decision.reason });
    outgoing.cut(decision.reason);
    this.#counts.refused++;
    this.#network.onConnection(this.#owner, "refused", { ...record });
    return false;
  }

  /** Of the names that the rules allow, those that resolve to the address */
  async #verified(hints: string[], address: Address, port: number): Promise<string[]> {
    const { names } = this.#network;
    if (this.#rules.mode === "open") return hints.filter((name) => names.knows(this.#asker, name, address));
    const candidates = this.#rules.candidates(hints, port);
    const leads = candidates.map(async (name) => {
      if (names.knows(this.#asker, name, address)) return true;
      return this.#mayAsk(name.length) && names.leadsTo(this.#asker, name, address);
    });
    const found = await Promise.all(leads);
    return candidates.filter((_, at) => found[at]);
  }

  #namesOf(ip: string, hints: string[]): string[] {
    const said = hints.slice(-MAX_HINTS).toReversed();
    const all = [...(this.#answered.get(ip)?.toReversed() ?? []), ...said].flatMap((name) => normalName(name) ?? []);
    return [...new Set(all)];
  }

  #serveDns(incoming: Incoming): void {
    if (this.#dnsStreams >= MAX_DNS_STREAMS) return incoming.refuse("EAGAIN", "too many connections");
    this.#dnsStreams++;
    const answer = async (message: Buffer): Promise<Buffer | undefined> => (await this.#answer(message, TCP_LIMIT))?.response;
    serveDns(incoming, answer, () => this.#dnsStreams--);
  }

  async #resolve(incoming: Incoming, message: Buffer): Promise<void> {
    if (this.#queries >= MAX_QUERIES) return incoming.refuse("EAGAIN", "too many queries");
    this.#queries++;
    try {
      const reply = await this.#answer(message, UDP_LIMIT);
      if (!reply) return incoming.refuse("bad_request", "not a query");
      const answer = new Writer().bytes(reply.response).str(reply.name);
      incoming.answer(answer.list(reply.addresses, (writer, ip) => void writer.str(ip)).done());
    } finally {
      this.#queries--;
    }
  }

  async #answer(message: Buffer, limit: number): Promise<Reply | undefined> {
    const mayAsk = (): boolean => this.#mayAsk(message.length);
    const reply = await answerQuery(message, { rules: this.#rules, network: this.#network, owner: this.#asker, limit, mayAsk });
    if (reply?.refused) this.#refusedName(reply.refused);
    for (const ip of reply?.addresses ?? []) this.#learn(ip, reply?.name ?? "");
    return reply;
  }

  /** A query to the host's name servers counts as egress, too */
  #mayAsk(bytes: number): boolean {
    return this.#lookups.take() && this.#spend(bytes);
  }

  #learn(ip: string, name: string): void {
    const names = (this.#answered.get(ip) ?? []).filter((known) => known !== name);
    this.#answered.delete(ip);
    this.#answered.set(ip, [...names, name].slice(-MAX_HINTS));
    if (this.#answered.size > MAX_ANSWERED) this.#answered.delete([...this.#answered.keys()][0] ?? "");
  }

  #refusedName(name: string): void {
    const now = performance.now();
    if (now - (this.#refusedNames.get(name) ?? -Infinity) < SAME_NAME_MS) return;
    if (this.#refusedNames.size >= MAX_RECENT) this.#refusedNames.clear();
    this.#refusedNames.set(name, now);
    this.#refused({ ...BLANK, time: new Date(), name, reason: "no rule allows the name" });
  }

  #refused(record: ConnectionRecord): void {
    this.#counts.refused++;
    if (!this.#refusals.take()) return;
    this.#note(record);
    this.#network.onConnection(this.#owner, "refused", { ...record });
  }

  #note(record: ConnectionRecord): void {
    this.#recent = [record, ...this.#recent].slice(0, MAX_RECENT);
  }

  get #isSpent(): boolean {
    const limit = this.#policy.egressLimitBytes;
    return limit !== null && this.#spent >= limit;
  }

  #spend(bytes: number): boolean {
    const limit = this.#policy.egressLimitBytes;
    if (limit !== null && this.#spent + bytes > limit) {
      this.#spent = Math.max(this.#spent, limit);
      if (this.#leased < limit) this.#lease(limit);
      return false;
    }
    if (!this.#network.maySend(this.#owner, bytes)) return false;
    this.#spent += bytes;
    this.#counts.bytesUp += bytes;
    if (limit !== null && this.#spent > this.#leased) {
      // Journaled in advance, in steps: after a crash of the daemon the sandbox still cannot exceed its limit.
      const step = Math.min(LEASE.most, Math.max(LEASE.least, Math.ceil(limit / LEASE.steps)));
      this.#lease(Math.min(limit, this.#spent + step));
    }
    return true;
  }

  #lease(bytes: number): void {
    this.#leased = bytes;
    this.#network.onSpent(this.#owner, bytes);
  }
}

const BLANK: ConnectionRecord = {
  time: new Date(0),
  name: null,
  ip: null,
  port: null,
  decision: "refused",
  reason: "",
  error: null,
  bytesUp: 0,
  bytesDown: 0,
  ms: 0,
  open: false,
};

const SPENT = "the egress limit is reached";
const RESERVED = { allowed: false, reason: "the daemon's own address" } as const;

// Ownership of the sandboxes that a client creates, and their end when the client disconnects.

import { randomBytes } from "node:crypto";
import { NotFoundError, SandboxGoneError } from "forkd";
import type { Controller } from "forkd";

/** Metadata key with the connection that a sandbox belongs to */
export const OWNER_KEY = "mcp_connection";
/** Renewals per lease */
const RENEWALS = 5;
/** Limit of the clean-up when the server ends */
const CLEAN_UP_MS = 12_000;

/** Fields that limit the lifetime of a new sandbox */
export type OwnerFields = {
  metadata: Record<string, string>;
  ttlSecs?: number | null;
  idleTimeoutSecs?: number | null;
};

export type Owner = {
  /** Runs a creation with the fields that tie its sandboxes to this owner */
  make: <T>(create: (fields: OwnerFields) => Promise<T>) => Promise<T>;
};

/** Without a connection no disconnect can end the sandboxes: an idle time-out does */
export function idleOwner(idleSecs: number): Owner {
  return { make: async (create) => create({ metadata: { [OWNER_KEY]: "none" }, idleTimeoutSecs: idleSecs }) };
}

export type ConnectionOptions = {
  /** A connection to the daemon, which is started if needed */
  connect: () => Promise<Controller>;
  /** How long sandboxes outlive a server that was killed */
  leaseSecs: number;
  /** Called with errors that cannot be reported to the client */
  onError: (error: unknown) => void;
};

/** One connection of one client. Its sandboxes carry its id and a time to live that is renewed while it lasts */
export class Connection implements Owner {
  readonly id: string = randomBytes(8).toString("hex");
  readonly #opts: ConnectionOptions;
  readonly #making = new Set<Promise<unknown>>();
  #timer: NodeJS.Timeout | undefined;
  #closed: Promise<void> | undefined;

  constructor(opts: ConnectionOptions) {
    this.#opts = opts;
  }

  async make<T>(create: (fields: OwnerFields) => Promise<T>): Promise<T> {
    const { leaseSecs, onError } = this.#opts;
    this.#timer ??= setInterval(() => void this.renew().catch(onError), (leaseSecs * 1000) / RENEWALS).unref();
    const made = create({ metadata: { [OWNER_KEY]: this.id }, ttlSecs: leaseSecs });
    this.#making.add(made);
    try {
      return await made;
    } finally {
      this.#making.delete(made);
    }
  }

  /** Renews the lease of its sandboxes */
  async renew(): Promise<void> {
    const { connect, leaseSecs } = this.#opts;
    const forkd = await connect();
    await this.#each(forkd, async (id, signal) => forkd.updateSandbox(id, { ttlSecs: leaseSecs, signal }));
  }

  /** Ends its sandboxes; resolves when they have ended */
  async close(): Promise<void> {
    return (this.#closed ??= this.#end());
  }

  async #end(): Promise<void> {
    const isUsed = this.#timer !== undefined;
    clearInterval(this.#timer);
    // a creation in progress when the client disconnects must be found too
    await Promise.allSettled(this.#making);
    if (!isUsed) return;
    try {
      const forkd = await this.#opts.connect();
      await this.#each(forkd, async (id, signal) => forkd.killSandbox(id, { signal }));
    } catch (error) {
      this.#opts.onError(error);
    }
  }

  /** Found by metadata, so that a sandbox whose answer was lost is included */
  async #each(forkd: Controller, act: (id: string, signal: AbortSignal) => Promise<unknown>): Promise<void> {
    const signal = AbortSignal.timeout(CLEAN_UP_MS);
    const mine = await forkd.listSandboxes({ metadata: { [OWNER_KEY]: this.id }, signal });
    const outcomes = await Promise.allSettled(mine.map(async ({ id }) => act(id, signal)));
    for (const outcome of outcomes) if (outcome.status === "rejected" && !isGone(outcome.reason)) this.#opts.onError(outcome.reason);
  }
}

function isGone(error: unknown): boolean {
  return error instanceof NotFoundError || error instanceof SandboxGoneError;
}

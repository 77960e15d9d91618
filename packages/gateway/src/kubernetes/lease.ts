// A Lease of Kubernetes: of all gateways at most one holds it, and does what only one may do.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "@forkd/runtime/errors";

import type { KubernetesApi } from "./api.ts";

const GROUP = "coordination.k8s.io/v1";
const DURATION_SECS = 15;
const RENEW_MS = 4000;
/** Given up before others may take it, by the clock of this machine */
const HELD_MS = 10_000;

/** As it is in JSON; the client's type has objects for times */
type LeaseObject = {
  metadata: object;
  spec?:
    | {
        holderIdentity?: string | undefined;
        leaseDurationSeconds?: number | undefined;
        renewTime?: string | undefined;
        acquireTime?: string | undefined;
        leaseTransitions?: number | undefined;
      }
    | undefined;
};

export class Lease implements AsyncDisposable {
  readonly #api: KubernetesApi;
  readonly #name: string;
  readonly #holder: string;
  readonly #stop = new AbortController();
  readonly #loop: Promise<void>;
  #heldUntil = 0;
  /** what another gateway wrote, and when this one first read it: clocks of machines differ */
  #seen: { renewTime: string | undefined; at: number } = { renewTime: "", at: 0 };

  constructor(api: KubernetesApi, name: string, holder: string) {
    this.#api = api;
    this.#name = name;
    this.#holder = holder;
    this.#loop = this.#renewUntilClosed();
  }

  get isHeld(): boolean {
    return performance.now() < this.#heldUntil;
  }

  /** Gives it up, so that another gateway need not wait for its end */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    if (!this.isHeld) return;
    this.#heldUntil = 0;
    try {
      const lease = await this.#read();
      if (lease?.spec?.holderIdentity === this.#holder) await this.#write(lease, { ...lease.spec, holderIdentity: undefined });
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error; // the API server is away: it ends by itself
    }
  }

  async #renewUntilClosed(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#tryOnce();
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error; // the API server is away: the next turn tries again
      }
      await sleep(RENEW_MS, undefined, { signal: this.#stop.signal }).catch(() => undefined); // closed
    }
  }

  async #tryOnce(): Promise<void> {
    const from = performance.now();
    const lease = await this.#read();
    if (!lease || !this.#mayTake(lease)) return;
    // Kubernetes has microseconds here.
    const now = new Date().toISOString().replace("Z", "000Z");
    const isOurs = lease.spec?.holderIdentity === this.#holder;
    const isWritten = await this.#write(lease, {
      holderIdentity: this.#holder,
      leaseDurationSeconds: DURATION_SECS,
      renewTime: now,
      acquireTime: isOurs ? lease.spec?.acquireTime : now,
      leaseTransitions: (lease.spec?.leaseTransitions ?? 0) + (isOurs ? 0 : 1),
    });
    // Counted from before the request: others count from the moment that they see it.
    if (isWritten) this.#heldUntil = from + HELD_MS;
  }

  #mayTake(lease: LeaseObject): boolean {
    const { holderIdentity, renewTime, leaseDurationSeconds } = lease.spec ?? {};
    if (!holderIdentity || holderIdentity === this.#holder) return true;
    if (this.#seen.renewTime !== renewTime) this.#seen = { renewTime, at: performance.now() };
    return performance.now() > this.#seen.at + (leaseDurationSeconds ?? DURATION_SECS) * 1000;
  }

  /** The Lease comes with the manifests: a role can allow changes of one object, but not its creation */
  async #read(): Promise<LeaseObject | undefined> {
    const answer = await this.#api.request<LeaseObject>("GET", this.#path);
    return answer.status === "ok" ? answer.body : undefined;
  }

  /** False if another gateway was first: the resourceVersion that was read is no longer the newest */
  async #write(lease: LeaseObject, spec: LeaseObject["spec"]): Promise<boolean> {
    return (await this.#api.request("PUT", this.#path, { ...lease, spec })).status === "ok";
  }

  get #path(): string {
    return `${this.#api.path(GROUP, "leases")}/${this.#name}`;
  }
}

// Layered snapshot build, used by recipes and E2B templates, which share cached layers.

import { ForkdError } from "@forkd/runtime/errors";
import { BuildCache, type CacheServices } from "./cache.ts";
import { guestOf, type Guest, type GuestServices } from "./guest.ts";
import type { SetNetwork } from "../api/network.ts";
import type { SnapshotInfo } from "../api/snapshot.ts";
import type { Caller } from "../service/caller.ts";
import type { Manager } from "../service/manager.ts";

/** Idle timeout of a build's sandbox, in case its daemon can no longer remove it */
const ALONE_SECS = 60;

export type EngineServices = GuestServices &
  CacheServices & {
    sandboxes: Pick<Manager["sandboxes"], "create" | "remove">;
    networks: Pick<Manager["networks"], "set">;
  };

export type Layer = { key: string; title: string; work: (guest: Guest) => Promise<void> };

/** Boots an image into a snapshot with this tag: the first layer */
export type Boot = { key: string; title: string; work: (snapshot: { tag: string; metadata: Record<string, string> }) => Promise<void> };

export type Job<T> = {
  /** name of the recipe or template */
  recipe: string;
  tag: string;
  /** image to boot, or snapshot id */
  start: Boot | string;
  layers: Layer[];
  /** cache key of the finished snapshot */
  key: string;
  env: Record<string, string> | undefined;
  /** network policy during the build */
  network: SetNetwork;
  /** network policy of the finished snapshot's forks */
  networkOfForks: SetNetwork;
  /** metadata of the finished snapshot */
  metadata?: Record<string, string>;
  /** description of the finished snapshot */
  description?: string;
  /** number of layers that may come from the cache, the boot included; default: all */
  reusable?: number;
  /** runs in the sandbox after the last layer */
  finish: (guest: Guest, during: During) => Promise<void>;
  /** runs before a finished snapshot gets its tag, or when the existing one is unchanged */
  verify: (fork: InFork, opts: { isNew: boolean }) => Promise<T>;
};

export type BuiltStep = { title: string; ms: number; cached: boolean };
export type BuiltSnapshot<T> = { snapshot: SnapshotInfo; unchanged: boolean; verified: T };

/** Reports the start and the end of a part of the build */
export type During = <T>(title: string, work: () => Promise<T>) => Promise<T>;

/** Runs work in a fork of the built snapshot, as users get it */
export type InFork = <T>(title: string, work: (guest: Guest) => Promise<T>) => Promise<T>;

type Parts<T> = { services: EngineServices; job: Job<T>; caller: Caller; steps: BuiltStep[] };

/** Builds of one tag must not run concurrently: see Recipes */
export async function runJob<T>(parts: Parts<T>): Promise<BuiltSnapshot<T>> {
  const { services, job, caller } = parts;
  const { recipe, tag, reusable = Infinity } = job;
  // not the build's signal: a cancelled build must still remove its sandbox and candidate
  const cleaning: Caller = { ...caller, signal: new AbortController().signal, progress: undefined, remember: undefined };
  const cache = new BuildCache(services, { recipe, tag, caller: cleaning });
  const before = reusable === Infinity ? await cache.finished(job.key) : undefined;
  const work = { ...parts, cache, cleaning, caller: { ...caller, remember: undefined } };
  if (before) {
    report(parts, { title: `Snapshot ${tag}`, ms: 0, cached: true });
    const verified = await job.verify(inFork(work, before.id), { isNew: false });
    return { snapshot: await cache.described(before, job.description), unchanged: true, verified };
  }
  try {
    return { ...(await make(work)), unchanged: false };
  } finally {
    await cache.prune(keyed(job));
  }
}

type Work<T> = Parts<T> & { cache: BuildCache; cleaning: Caller };

function keyed<T>({ start, layers }: Job<T>): { key: string; title: string }[] {
  return [...(typeof start === "string" ? [] : [start]), ...layers];
}

async function make<T>(work: Work<T>): Promise<Omit<BuiltSnapshot<T>, "unchanged">> {
  const { services, job, caller, cache, cleaning } = work;
  const { start, env, network } = job;
  const all = keyed(job);
  const titled = (index: number): string => `[${index + 1}/${all.length}] ${all[index]?.title ?? ""}`;
  const done = await cache.lastDone(all.slice(0, job.reusable));
  for (let index = 0; index <= (done?.index ?? -1); index++) report(work, { title: titled(index), ms: 0, cached: true });
  const boots = done === undefined && typeof start !== "string";
  const from = done?.snapshot.id ?? (typeof start === "string" ? start : cache.layerTag(start));
  if (boots) await during(work)(titled(0), async () => boot(work, start));
  await using stack = new AsyncDisposableStack();
  const sandbox = await fork(work, from, stack, { env, network });
  const guest = guestOf(services, sandbox, caller);
  const offset = all.length - job.layers.length;
  for (const [index, layer] of job.layers.entries()) {
    if (index + offset <= (done?.index ?? -1)) continue;
    await during(work)(titled(index + offset), async () => {
      await layer.work(guest);
      await cache.keep(sandbox, layer, caller.signal);
    });
  }
  await job.finish(guest, during(work));
  // forks must not inherit the network policy of the build
  await services.networks.set(sandbox, job.networkOfForks, caller);
  return await cache.candidate(sandbox, caller.signal, async (candidate) => {
    await services.sandboxes.remove(sandbox, cleaning);
    const verified = await job.verify(inFork(work, candidate), { isNew: true });
    caller.signal.throwIfAborted();
    return { verified, snapshot: await cache.publish(candidate, job) };
  });
}

async function boot<T>({ cache }: Work<T>, layer: Boot): Promise<void> {
  const tag = cache.layerTag(layer);
  await cache.drop(tag);
  await layer.work({ tag, metadata: cache.layerMetadata(layer) });
}

type ForkOptions = { env?: Record<string, string> | undefined; network?: SetNetwork };

/** Creates a sandbox that is removed with the stack */
async function fork<T>(work: Work<T>, snapshot: string, stack: AsyncDisposableStack, opts: ForkOptions): Promise<string> {
  const { services, cache, cleaning } = work;
  const request = { snapshot_tag: snapshot, n: 1, per_item: false, metadata: cache.buildMetadata, idle_timeout_secs: ALONE_SECS, ...opts };
  const [made] = await services.sandboxes.create(request, work.caller);
  if (!made) throw new ForkdError("FORK_FAILED", `Cannot build ${work.job.recipe}: the fork of ${snapshot} made no sandbox.`);
  stack.defer(async () => {
    try {
      await services.sandboxes.remove(made.id, cleaning);
    } catch (error) {
      if (!(error instanceof ForkdError) || error.code !== "NOT_FOUND") throw error;
    }
  });
  return made.id;
}

function inFork<T>(work: Work<T>, snapshot: string): InFork {
  return async (title, use) =>
    during(work)(title, async () => {
      await using stack = new AsyncDisposableStack();
      return await use(guestOf(work.services, await fork(work, snapshot, stack, {}), work.caller));
    });
}

function during<T>(parts: Pick<Parts<T>, "caller" | "steps">): During {
  return async (title, work) => {
    parts.caller.progress?.({ step: title });
    const began = performance.now();
    const result = await work();
    report(parts, { title, ms: Math.round(performance.now() - began), cached: false });
    return result;
  };
}

function report<T>({ caller, steps }: Pick<Parts<T>, "caller" | "steps">, step: BuiltStep): void {
  steps.push(step);
  caller.progress?.({ step: step.title, ...(step.cached ? { cached: true } : { ms: step.ms }) });
}

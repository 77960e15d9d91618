// Recipe service: lists, checks and builds recipes for all front ends.

import { join } from "node:path";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { withStaging } from "@forkd/runtime/host/staging";
import { buildRecipe, type BuildOptions, type BuildServices, type Login } from "./build.ts";
import { runJob, type BuiltSnapshot, type BuiltStep, type Job } from "./engine.ts";
import { RecipeFiles } from "./files.ts";
import { BUILD_KEY, isLayer, STEP_KEY } from "./layer.ts";
import { loadAllIncluded, loadIncluded, loadRecipe, type FoundRecipe } from "./library.ts";
import { parseRecipe } from "./parse.ts";
import type { BuildQuery, BuiltRecipe, CheckedRecipe, CheckRecipe, RecipeInfo } from "../api/recipes.ts";
import type { Home } from "@forkd/runtime/home";
import { ownCaller, type Caller } from "../service/caller.ts";
import { EVERY_PROJECT, storedName } from "../store/project-names.ts";
import type { Log } from "../service/core.ts";
import type { Manager } from "../service/manager.ts";

/** Limit of concurrent uploads: each can use gigabytes of disk */
const MAX_UPLOADS = 8;
const MAX_BUILD_MS = 12 * 3_600_000;

type Services = BuildServices & {
  sandboxes: Pick<Manager["sandboxes"], "list" | "create" | "remove">;
  snapshots: Pick<Manager["snapshots"], "list" | "remove">;
};

export class Recipes {
  readonly #services: Services;
  readonly #home: Home;
  readonly #log: Log;
  /** the last running or queued build of each tag */
  readonly #builds = new Map<string, Promise<void>>();
  #uploads = 0;

  constructor(services: Services, { home, log }: { home: Home; log: Log }) {
    this.#services = services;
    this.#home = home;
    this.#log = log;
  }

  /** Included recipes */
  async list(): Promise<RecipeInfo[]> {
    return (await loadAllIncluded()).map(infoOf);
  }

  /** Files that a client must upload to build the recipe. Throws RECIPE_INVALID */
  check({ source, folder, set = {} }: CheckRecipe): CheckedRecipe {
    const parsed = parseRecipe(source, folder === undefined ? "recipe.yaml" : `${folder}/recipe.yaml`, set);
    const { recipe } = parsed;
    if (folder !== undefined && folder !== recipe.name) throw parsed.wrong(["name"], `must be the name of its folder, ${folder}`);
    const { image } = recipe;
    const files = [...recipe.files.map(({ from }) => from), ...(image.kind === "tar" ? [image.tar] : [])];
    return {
      ...infoOf({ recipe, tag: recipe.tag ?? recipe.name }),
      files: [...new Set(files)],
      base: image.kind === "recipe" ? image.recipe : null,
      registry_reference: image.kind === "oci" ? image.oci : null,
    };
  }

  /** Builds an uploaded or included recipe */
  async build(query: BuildQuery, upload: AsyncIterable<Uint8Array>, caller: Caller, login?: Login): Promise<BuiltRecipe> {
    const { recipe, tag, set, test, no_cache: noCache } = query;
    return this.#received(upload, caller, async (files) =>
      this.#build(await loadRecipe(files, recipe, pairsOf(set)), { tag, test, noCache, login }, caller),
    );
  }

  /** Builds an included recipe */
  async buildIncluded(name: string, caller: Caller): Promise<BuiltRecipe> {
    return this.#build(await loadIncluded(name), {}, caller);
  }

  /** Runs a job that does not come from a recipe, under the lock of its tag */
  async run<T>(job: Job<T>, caller: Caller): Promise<BuiltSnapshot<T>> {
    const steps: BuiltStep[] = [];
    return this.#exclusive(job.tag, caller, async () => runJob({ services: this.#services, job, caller, steps }));
  }

  /** Removes the layers of a tag whose snapshot was removed */
  async forget(tag: string, caller: Caller): Promise<void> {
    const { items } = await this.#services.snapshots.list({ metadata: [`${BUILD_KEY}=${tag}`] }, caller);
    for (const layer of items.filter((each) => each.status !== "writing" && each.metadata[STEP_KEY] !== undefined))
      await this.#gone(async () => this.#services.snapshots.remove(layer.tag, { force: true, cascade: undefined }, caller));
  }

  /** Finds sandboxes and candidates of builds of an earlier daemon; returns a function that removes them */
  async leftovers(principal: string): Promise<() => Promise<void>> {
    const { sandboxes, snapshots } = this.#services;
    const all = { project: EVERY_PROJECT };
    const running = sandboxes.list({}, all).items.filter(({ metadata }) => metadata[BUILD_KEY] !== undefined);
    const { items } = await snapshots.list({ status: "ready" }, all);
    const candidates = items.filter((each) => isLayer(each) && each.metadata[STEP_KEY] === undefined);
    const force = { force: true, cascade: undefined };
    return async () => {
      for (const { id, project } of running) await this.#gone(async () => sandboxes.remove(id, ownCaller(principal, project)));
      for (const { tag, project } of candidates) await this.#gone(async () => snapshots.remove(tag, force, ownCaller(principal, project)));
    };
  }

  async #build(found: FoundRecipe, opts: BuildOptions, caller: Caller): Promise<BuiltRecipe> {
    const began = performance.now();
    const late = AbortSignal.timeout(MAX_BUILD_MS);
    const bounded = { ...caller, signal: AbortSignal.any([caller.signal, late]) };
    const parts = { services: this.#services, home: this.#home, exclusive: this.#exclusive.bind(this), caller: bounded };
    const { snapshot, unchanged, steps, tests } = await buildRecipe(parts, found, opts);
    return { tag: snapshot.tag, unchanged, ms: Math.round(performance.now() - began), steps, tests, snapshot };
  }

  async #received<T>(upload: AsyncIterable<Uint8Array>, caller: Caller, use: (files: RecipeFiles) => Promise<T>): Promise<T> {
    if (this.#uploads >= MAX_UPLOADS)
      throw new ForkdError("BUSY", `Cannot take the files of a recipe: ${this.#uploads} other builds use uploaded files.`);
    this.#uploads++;
    try {
      return await withStaging(this.#home, async (folder) =>
        use(await RecipeFiles.receive(upload, join(folder, "files.tar"), caller.signal)),
      );
    } finally {
      this.#uploads--;
    }
  }

  /** Serializes builds of one tag, in request order */
  async #exclusive<T>(tag: string, caller: Caller, work: () => Promise<T>): Promise<T> {
    const key = storedName(tag, caller.project);
    const before = this.#builds.get(key);
    const own = Promise.withResolvers<void>();
    const done = (before ?? Promise.resolve()).then(async () => own.promise);
    this.#builds.set(key, done);
    try {
      if (before) {
        caller.progress?.({ step: `Waiting for another build of ${tag}` });
        await unlessAborted(before, caller.signal);
      }
      return await work();
    } finally {
      own.resolve();
      if (this.#builds.get(key) === done) this.#builds.delete(key);
    }
  }

  async #gone(remove: () => Promise<unknown>): Promise<void> {
    try {
      await remove();
    } catch (error) {
      if (error instanceof ForkdError && error.code === "NOT_FOUND") return;
      this.#log.warn({ err: error }, `files of a build could not be removed: ${messageOf(error)}`);
    }
  }
}

async function unlessAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const stop = Promise.withResolvers<never>();
  const abort = (): void => stop.reject(signal.reason as Error);
  signal.addEventListener("abort", abort, { once: true });
  try {
    await Promise.race([work, stop.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function infoOf({ recipe, tag }: Pick<FoundRecipe, "recipe" | "tag">): RecipeInfo {
  const { name, description, vars } = recipe;
  return { name, tag, description, variables: vars };
}

function pairsOf(set: readonly string[] = []): Record<string, string> {
  return Object.fromEntries(set.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
}

// Builds a recipe: what changed is done again, all else is taken from the builds before.

import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { ABORTABLE } from "../daemon.ts";
import { codeOf, failure } from "../errors.ts";
import { removed, temporaryName, withSandbox } from "../temporary.ts";
import { printedBy, waitForAll } from "./checks.ts";
import { hashOf } from "./file-hash.ts";
import { loadBase } from "./find.ts";
import { makeRecipeImage } from "./image.ts";
import { BUILD_KEY } from "./layer.ts";
import { planOf } from "./plan.ts";
import { copyFile, doStep, StepFailure } from "./steps.ts";
import { BuildStore } from "./store.ts";
import { runTests } from "./tests.ts";

import type { Controller, NetworkOptions, SnapshotInfo } from "forkd";
import type { Cli } from "../cli.ts";
import type { Unready } from "./checks.ts";
import type { FoundRecipe } from "./find.ts";
import type { Base, Layer, Plan } from "./plan.ts";
import type { Place } from "./steps.ts";
import type { TestResult } from "./tests.ts";

/** A build whose command was killed leaves its sandbox for so long */
const IDLE_SECS = 3600;
/** For the code of each kernel; steps have limits of their own */
const WARM_SECS = 600;
const BUILD_HINT =
  "Mend the recipe and build again: it goes on from the last step that succeeded. An older snapshot of the tag stays as it was.";

export type Work = {
  cli: Cli;
  forkd: Controller;
  /** Shows a part of the work while it lasts, and how long it took */
  during: <T>(title: string, work: (onProgress: (event: { step: string }) => void) => Promise<T>) => Promise<T>;
  /** A part that was done before */
  cached: (title: string) => void;
  /** What something inside the guest printed before it failed */
  output: (text: string) => Promise<void>;
};

export type BuildOptions = { tag?: string | undefined; noCache?: boolean | undefined; test?: boolean | undefined };

export type Built = { snapshot: SnapshotInfo; /** nothing had to be done */ unchanged: boolean; tests: TestResult[] };

export async function buildRecipe(work: Work, found: FoundRecipe, opts: BuildOptions = {}, above: readonly string[] = []): Promise<Built> {
  const { cli, forkd } = work;
  const { recipe } = found;
  const start = await startOf(work, found, above);
  const plan = planOf(recipe, start.base, await contentsOf(found));
  const store = new BuildStore(cli, forkd, recipe.name, opts.tag ?? found.tag);
  const there = opts.noCache ? undefined : await store.finished(plan.key);
  if (there) {
    work.cached(`Snapshot ${store.tag}`);
    return { snapshot: there, unchanged: true, tests: opts.test ? await runTests(work, recipe, store.tag) : [] };
  }
  try {
    return { ...(await make(work, found, { plan, store, start, opts })), unchanged: false };
  } finally {
    await store.prune(plan.layers);
  }
}

/** What it begins with: an image, or a snapshot whose recipe is built first */
type Start = { base: Base; tag: string | undefined; network: NetworkOptions };

async function startOf(work: Work, found: FoundRecipe, above: readonly string[]): Promise<Start> {
  const { image } = found.recipe;
  const none: NetworkOptions = { mode: "none" };
  if (image.kind === "recipe") {
    if (above.includes(found.file)) throw found.wrong(["image", "recipe"], "leads back to itself");
    const base = await loadBase(found, image.recipe);
    const { snapshot } = await buildRecipe(work, base, {}, [...above, found.file]);
    return startFrom(snapshot);
  }
  if (image.kind === "snapshot") return startFrom(await work.forkd.getSnapshot(image.snapshot, { signal: work.cli.signal }));
  if (image.kind !== "tar") return { base: { kind: "image" }, tag: undefined, network: none };
  const content = await hashOf(await existing(found, ["image", "tar"], image.tar));
  return { base: { kind: "image", content }, tag: undefined, network: none };
}

function startFrom({ id, tag, network }: SnapshotInfo): Start {
  const { mode = "none", allow, egress_limit_bytes: egressLimitBytes } = network ?? {};
  return { base: { kind: "snapshot", id }, tag, network: { mode, allow, egressLimitBytes } };
}

async function contentsOf(found: FoundRecipe): Promise<string[]> {
  return Promise.all(found.recipe.files.map(async ({ from }, index) => hashOf(await existing(found, ["files", index, "from"], from))));
}

async function existing(found: FoundRecipe, path: (string | number)[], given: string): Promise<string> {
  const file = resolve(found.folder, given);
  try {
    await stat(file);
    return file;
  } catch (error) {
    if (codeOf(error) === "ENOENT") throw found.wrong(path, `there is no ${file}`);
    throw error;
  }
}

type Parts = { plan: Plan; store: BuildStore; start: Start; opts: BuildOptions };

async function make(work: Work, found: FoundRecipe, { plan, store, start, opts }: Parts): Promise<Omit<Built, "unchanged">> {
  const { cli, forkd } = work;
  const { recipe } = found;
  const { layers } = plan;
  const titled = (layer: Layer): string => `[${layers.indexOf(layer) + 1}/${layers.length}] ${layer.title}`;
  const done = opts.noCache ? undefined : await store.lastDone(layers);
  for (const layer of layers.slice(0, (done?.index ?? -1) + 1)) work.cached(titled(layer));
  let next = (done?.index ?? -1) + 1;
  let from = done?.snapshot.tag ?? start.tag;
  const [first] = layers;
  if (from === undefined && first) {
    from = await work.during(titled(first), async (onProgress) => boot(work, found, store, first, opts, onProgress));
    next = 1;
  }
  const name = temporaryName("build");
  try {
    const { env, network } = recipe;
    const life = { idleTimeoutSecs: IDLE_SECS, metadata: { [BUILD_KEY]: store.tag }, ...ABORTABLE, signal: cli.signal };
    const [sandbox] = await forkd.spawnSandboxes(from ?? "", { n: 1, name, env, network, ...life });
    const at = { forkd, sandbox: sandbox?.id ?? name, signal: cli.signal };
    for (const layer of layers.slice(next)) {
      await work.during(titled(layer), async () => {
        await doLayer(work, found, layer, at);
        await store.keep(at.sandbox, layer);
      });
    }
    if (recipe.ready.length > 0)
      await work.during("Waiting until it is ready", async () => {
        const unready = await waitForAll(recipe.ready, recipe, at);
        if (unready) throw await notSo(work, found, at, unready, "is not ready");
      });
    // what the steps could reach, forks cannot
    await forkd.setNetwork(at.sandbox, start.network, { signal: cli.signal });
    return await store.candidate(at.sandbox, async (candidate) => {
      await removed(async (signal) => forkd.killSandbox(name, { signal }));
      await checkHealth(work, found, candidate);
      const tests = opts.test ? await runTests(work, recipe, candidate) : [];
      return { tests, snapshot: await store.publish(candidate, plan.key) };
    });
  } finally {
    await removed(async (signal) => forkd.killSandbox(name, { signal }));
  }
}

async function boot(
  work: Work,
  found: FoundRecipe,
  store: BuildStore,
  layer: Layer,
  opts: BuildOptions,
  onProgress: (event: { step: string }) => void,
): Promise<string> {
  const { cli, forkd } = work;
  const { env, machine, kernels } = found.recipe;
  const image = await makeRecipeImage(work, found, { force: opts.noCache === true, onProgress });
  const tag = store.layerTag(layer);
  await store.drop(tag);
  await forkd.createSnapshot(tag, {
    image,
    memoryMib: machine?.memory_mib,
    vcpus: machine?.vcpus,
    diskMib: machine?.disk_mib,
    warmUp: { kernels: kernels ?? [], timeoutSecs: WARM_SECS },
    env,
    metadata: store.layerMetadata(layer),
    ...ABORTABLE,
    timeoutMs: 0,
    onProgress,
    signal: cli.signal,
  });
  return tag;
}

async function doLayer(work: Work, found: FoundRecipe, layer: Layer, at: Place): Promise<void> {
  try {
    if (layer.kind === "copy") await copyFile(layer.file, found.folder, at);
    else if (layer.kind === "step") await doStep(layer.step, at);
  } catch (error) {
    if (at.signal.aborted) throw error;
    const why = error instanceof Error ? error.message : String(error);
    if (error instanceof StepFailure) await work.output(error.output);
    throw failure("BUILD_FAILED", `Cannot build ${found.recipe.name}: the step “${layer.title}” failed: ${why}`, BUILD_HINT, error);
  }
}

async function notSo(work: Work, { recipe }: FoundRecipe, at: Place, { check, why, output }: Unready, what: string): Promise<Error> {
  await work.output(output);
  for (const step of recipe.steps) if (step.kind === "start" && step.tag !== undefined) await work.output(await printedBy(at, step.tag));
  return failure("BUILD_FAILED", `Cannot build ${recipe.name}: it ${what}: ${check}: ${why}`, BUILD_HINT);
}

/** In a fork, as its users get it */
async function checkHealth(work: Work, found: FoundRecipe, tag: string): Promise<void> {
  const { cli, forkd } = work;
  const { recipe } = found;
  if (recipe.health.length === 0) return;
  await work.during("Checking a fork", async () =>
    withSandbox(cli, forkd, tag, async (sandbox) => {
      const at = { forkd, sandbox, signal: cli.signal };
      const unready = await waitForAll(recipe.health, recipe, at);
      if (unready) throw await notSo(work, found, at, unready, "is not healthy after a fork");
    }),
  );
}

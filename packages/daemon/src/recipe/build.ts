// Recipe build: builds the base recipe first, then translates the recipe into a job of the engine.

import { open } from "node:fs/promises";
import { join, posix } from "node:path";
import { createSnapshot } from "../api/snapshot.ts";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { withStaging } from "@forkd/runtime/host/staging";
import { waitForAll, type Unready } from "./checks.ts";
import { runJob, type Boot, type BuiltStep, type During, type EngineServices, type InFork, type Job, type Layer } from "./engine.ts";
import { loadBase, type FoundRecipe } from "./library.ts";
import { planOf, type Base, type PlannedLayer } from "./plan.ts";
import { copyFile, doStep, outputOf, StepFailure } from "./steps.ts";
import { runTests, type TestResult } from "./tests.ts";
import type { CreateImage } from "../api/image.ts";
import type { SetNetwork } from "../api/network.ts";
import type { SnapshotInfo } from "../api/snapshot.ts";
import type { Home } from "@forkd/runtime/home";
import type { Caller } from "../service/caller.ts";
import type { Manager } from "../service/manager.ts";
import type { Guest } from "./guest.ts";

/** Time limit of each kernel's warm-up; steps have their own limits */
const WARM_SECS = 600;
const MAX_OUTPUT_LINES = 40;
const HINT = "Correct the recipe and build again: the build continues after the last step that succeeded.";

export type BuildServices = EngineServices & {
  images: Pick<Manager["images"], "create" | "importFile">;
  snapshots: Pick<Manager["snapshots"], "create" | "get">;
};

export type Login = { username: string; password: string };
export type BuildOptions = {
  tag?: string | undefined;
  noCache?: boolean | undefined;
  test?: boolean | undefined;
  login?: Login | undefined;
};
export type Built = { snapshot: SnapshotInfo; unchanged: boolean; steps: BuiltStep[]; tests: TestResult[] };

/** Serializes builds of the same tag */
export type Exclusive = <T>(tag: string, caller: Caller, work: () => Promise<T>) => Promise<T>;

type Parts = { services: BuildServices; home: Home; exclusive: Exclusive; caller: Caller };

export async function buildRecipe(parts: Parts, found: FoundRecipe, opts: BuildOptions = {}): Promise<Built> {
  const steps: BuiltStep[] = [];
  return { ...(await build({ ...parts, steps }, found, opts, [])), steps };
}

type Work = Parts & { steps: BuiltStep[] };

async function build(work: Work, found: FoundRecipe, opts: BuildOptions, above: readonly string[]): Promise<Omit<Built, "steps">> {
  const { services, caller, steps } = work;
  const { recipe } = found;
  const tag = opts.tag ?? found.tag;
  checkMachine(found);
  // build the base before the tag is locked: otherwise two builds could wait for each other
  const start = await startOf(work, found, above);
  const plan = planOf(recipe, start.base, await hashesOf(found));
  const layers = plan.layers.filter(({ kind }) => kind !== "boot").map((layer) => layerOf(layer, found));
  const [first] = plan.layers;
  const job: Job<TestResult[]> = {
    recipe: recipe.name,
    description: recipe.description,
    tag,
    start: start.base.kind === "snapshot" ? start.base.id : bootOf(work, found, first?.key ?? plan.key, opts),
    layers,
    key: plan.key,
    env: recipe.env,
    network: recipe.network,
    networkOfForks: start.network,
    ...(opts.noCache ? { reusable: 0 } : {}),
    finish: async (guest, during) => waitUntilReady(found, guest, during),
    verify: async (inFork, { isNew }) => verify(found, inFork, { ...opts, isNew }),
  };
  const { verified: tests, ...built } = await work.exclusive(tag, caller, async () => runJob({ services, job, caller, steps }));
  return { ...built, tests };
}

type Start = { base: Base; network: SetNetwork };

/** Image, or snapshot whose recipe is built first */
async function startOf(work: Work, found: FoundRecipe, above: readonly string[]): Promise<Start> {
  const { image, name } = found.recipe;
  if (image.kind === "recipe") {
    if (above.includes(name)) throw found.wrong(["image", "recipe"], "leads back to this recipe");
    const base = await loadBase(found, image.recipe);
    return startFrom((await build(work, base, {}, [...above, name])).snapshot);
  }
  if (image.kind === "snapshot") return startFrom(await work.services.snapshots.get(image.snapshot, work.caller));
  const content = image.kind === "tar" ? await found.files.hash(pathIn(found, ["image", "tar"], image.tar)) : undefined;
  return { base: { kind: "image", ...(content === undefined ? {} : { content }) }, network: { mode: "none" } };
}

function startFrom({ id, network }: SnapshotInfo): Start {
  return { base: { kind: "snapshot", id }, network: network ?? { mode: "none" } };
}

async function hashesOf(found: FoundRecipe): Promise<string[]> {
  const paths = found.recipe.files.map(({ from }, index) => pathIn(found, ["files", index, "from"], from));
  return Promise.all(paths.map(async (path) => found.files.hash(path)));
}

/** Path within the recipe's files; throws an error that names the place in the recipe */
function pathIn({ files, folder, wrong }: FoundRecipe, place: (string | number)[], given: string): string {
  const path = posix.join(folder, given);
  if (files.find(path) === undefined) throw wrong(place, `there is no file ${path}`);
  return path;
}

/** Applies the API's machine limits */
function checkMachine(found: FoundRecipe): void {
  const { machine, kernels, env } = found.recipe;
  const checked = createSnapshot.safeParse({ tag: "recipe", ...machine, env, warm_up: { kernels: kernels ?? [] } });
  const [issue] = checked.error?.issues ?? [];
  if (!issue) return;
  const [first, ...rest] = issue.path;
  throw found.wrong(first === "warm_up" ? rest : first === "env" ? issue.path : ["machine", ...issue.path], issue.message);
}

function bootOf(work: Work, found: FoundRecipe, key: string, opts: BuildOptions): Boot {
  const { env, machine, kernels } = found.recipe;
  const caller = { ...work.caller, remember: undefined };
  return {
    key,
    title: "Booting the image",
    work: async ({ tag, metadata }) => {
      const image = await makeImage(work, found, opts);
      const warmUp = { kernels: kernels ?? [], timeout_secs: WARM_SECS };
      await work.services.snapshots.create({ tag, image, ...machine, warm_up: warmUp, env, metadata }, caller);
    },
  };
}

/** Creates the image under the recipe's name and returns the name */
async function makeImage(work: Work, found: FoundRecipe, { noCache, login }: BuildOptions): Promise<string> {
  const { services, home } = work;
  const { name, image } = found.recipe;
  const caller = { ...work.caller, remember: undefined };
  if (image.kind === "tar") {
    const path = pathIn(found, ["image", "tar"], image.tar);
    await withStaging(home, async (folder) => {
      const file = join(folder, posix.basename(path));
      await writeOut(found.files.read(path), file);
      await services.images.importFile(name, file, caller);
    });
    return name;
  }
  const source: CreateImage =
    image.kind === "oci"
      ? { name, reference: image.oci, ...login }
      : {
          name,
          packages: image.kind === "packages" ? image.packages : [],
          run: image.kind === "packages" ? image.run : [],
          force: noCache,
        };
  await services.images.create(source, caller);
  return name;
}

async function writeOut(content: AsyncIterable<Uint8Array>, path: string): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  for await (const piece of content) await file.write(piece);
}

function layerOf(layer: PlannedLayer, found: FoundRecipe): Layer {
  const { key, title } = layer;
  const work = async (guest: Guest): Promise<void> => {
    try {
      if (layer.kind === "copy") await copyFile(layer.file, found.files, found.folder, guest);
      else if (layer.kind === "step") await doStep(layer.step, guest);
    } catch (error) {
      if (guest.signal.aborted) throw error;
      const output = error instanceof StepFailure ? error.output : "";
      const what = `Cannot build ${found.recipe.name}: the step “${title}” failed`;
      throw buildFailed(`${what}: ${withoutStop(messageOf(error))}.`, output, error);
    }
  };
  return { key, title, work };
}

async function waitUntilReady({ recipe }: FoundRecipe, guest: Guest, during: During): Promise<void> {
  if (recipe.ready.length === 0) return;
  await during("Waiting until it is ready", async () => {
    const unready = await waitForAll(recipe.ready, recipe, guest);
    if (unready) throw await failed(recipe, guest, unready, "is not ready");
  });
}

/** Health is checked only for a new snapshot; tests run whenever they are requested */
async function verify(
  { recipe }: FoundRecipe,
  inFork: InFork,
  opts: { test?: boolean | undefined; isNew: boolean },
): Promise<TestResult[]> {
  if (recipe.health.length > 0 && opts.isNew)
    await inFork("Checking a fork", async (guest) => {
      const unready = await waitForAll(recipe.health, recipe, guest);
      if (unready) throw await failed(recipe, guest, unready, "is not healthy after a fork");
    });
  return opts.test ? runTests(recipe, inFork) : [];
}

type Named = FoundRecipe["recipe"];

/** Error with the output of the check and of the processes that the recipe started */
async function failed(recipe: Named, guest: Guest, { check, why, output }: Unready, what: string): Promise<ForkdError> {
  let printed = output;
  for (const step of recipe.steps)
    if (step.kind === "start" && step.tag !== undefined) printed += outputOf((await guest.process(step.tag)).output);
  return buildFailed(`Cannot build ${recipe.name}: it ${what}: ${check}: ${withoutStop(why)}.`, printed);
}

/** The error's details contain the end of the output, which clients show before the message */
function buildFailed(message: string, output: string, cause?: unknown): ForkdError {
  const lines = output.trimEnd().split("\n");
  const cut = lines.length > MAX_OUTPUT_LINES ? [`(the last ${MAX_OUTPUT_LINES} of ${lines.length} lines)`] : [];
  const shown = output.trim() === "" ? {} : { details: { output: `${[...cut, ...lines.slice(-MAX_OUTPUT_LINES)].join("\n")}\n` } };
  return new ForkdError("BUILD_FAILED", message, { hint: HINT, cause, ...shown });
}

function withoutStop(text: string): string {
  return text.replace(/\.$/, "");
}

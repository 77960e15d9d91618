// How soon a fork of a recipe is ready, against a VM that boots and does it all.

import { failure } from "../errors.ts";
import { removed, temporaryName, withSandbox } from "../temporary.ts";
import { buildRecipe } from "./build.ts";
import { waitForAll } from "./checks.ts";
import { loadBase } from "./find.ts";
import { planOf } from "./plan.ts";
import { copyFile, doStep } from "./steps.ts";

import type { Work } from "./build.ts";
import type { FoundRecipe } from "./find.ts";
import type { Place } from "./steps.ts";

/** The daemon's word for the end of the boot: what comes after it, a VM that is not to be forked does not do */
const FREEZING = "Freezing";

export type RecipeFigure = { recipe: string; rounds: number; fork_ms: number; fresh_ms: number; times: number };
type Rounds = { fork: number[]; fresh: number[] };
type InTurns = (sides: Record<keyof Rounds, () => Promise<number>>) => Promise<Rounds>;

export async function benchRecipe(
  work: Work,
  found: FoundRecipe,
  measure: { inTurns: InTurns; median: (all: number[]) => number },
): Promise<RecipeFigure> {
  const chain = await chainOf(found);
  const { snapshot } = await buildRecipe(work, found);
  const { fork, fresh } = await work.during(`Measuring ${found.recipe.name}`, async () =>
    measure.inTurns({
      fork: async () => forkToReady(work, found, snapshot.tag),
      fresh: async () => bootToReady(work, chain),
    }),
  );
  const [forkMs, freshMs] = [Math.round(measure.median(fork)), Math.round(measure.median(fresh))];
  return { recipe: found.recipe.name, rounds: fork.length, fork_ms: forkMs, fresh_ms: freshMs, times: Math.round(freshMs / forkMs) };
}

/** The recipes it builds on, the one with the image first */
async function chainOf(found: FoundRecipe): Promise<FoundRecipe[]> {
  const { image } = found.recipe;
  if (image.kind === "recipe") return [...(await chainOf(await loadBase(found, image.recipe))), found];
  if (image.kind !== "snapshot") return [found];
  throw failure(
    "BAD_REQUEST",
    `Cannot measure ${found.recipe.name}: it begins with the snapshot ${image.snapshot}, which nothing says how to boot.`,
    "Measure a recipe that begins with an image.",
  );
}

async function forkToReady(work: Work, found: FoundRecipe, tag: string): Promise<number> {
  const began = performance.now();
  return withSandbox(work.cli, work.forkd, tag, async (sandbox) => {
    await healthy(found, { forkd: work.forkd, sandbox, signal: work.cli.signal });
    return performance.now() - began;
  });
}

/** What is done once, and the copying of files, is done and not counted: a fresh machine has a prepared disk */
async function bootToReady(work: Work, chain: readonly FoundRecipe[]): Promise<number> {
  const { cli, forkd } = work;
  const [root] = chain;
  if (!root) throw new Error("a recipe without a beginning");
  const { name, machine, kernels } = root.recipe;
  const env = Object.assign({}, ...chain.map(({ recipe }) => recipe.env ?? {})) as Record<string, string>;
  let counted = 0;
  const began = performance.now();
  const onProgress = ({ step }: { step: string }): void => {
    if (step === FREEZING && counted === 0) counted = performance.now() - began;
  };
  const tag = temporaryName("bench");
  try {
    await forkd.createSnapshot(tag, {
      image: name,
      memoryMib: machine?.memory_mib,
      vcpus: machine?.vcpus,
      diskMib: machine?.disk_mib,
      warmUp: { kernels: kernels ?? [] },
      env,
      idempotencyKey: null,
      timeoutMs: 0,
      onProgress,
      signal: cli.signal,
    });
    return await withSandbox(cli, forkd, tag, async (sandbox) => {
      const at = { forkd, sandbox, signal: cli.signal };
      for (const found of chain) {
        await forkd.setNetwork(sandbox, found.recipe.network, { signal: cli.signal });
        counted += await startUp(found, at, found === chain.at(-1));
      }
      return counted;
    });
  } finally {
    await removed(async (signal) => forkd.deleteSnapshot(tag, { force: true, signal }));
  }
}

/** How long what counts took */
async function startUp(found: FoundRecipe, at: Place, isLast: boolean): Promise<number> {
  const { recipe, folder } = found;
  let counted = 0;
  const timed = async (work: () => Promise<void>): Promise<void> => {
    const began = performance.now();
    await work();
    counted += performance.now() - began;
  };
  for (const layer of planOf(recipe, { kind: "snapshot", id: "" }, []).layers) {
    if (layer.kind === "copy") await copyFile(layer.file, folder, at);
    else if (layer.kind === "step" && layer.step.once) await doStep(layer.step, at);
    else if (layer.kind === "step") await timed(async () => doStep(layer.step, at));
  }
  await timed(async () => {
    const unready = await waitForAll(recipe.ready, recipe, at);
    if (unready) throw failure("BUILD_FAILED", `${recipe.name} is not ready: ${unready.check}: ${unready.why}`, "Build it first.");
    if (isLast) await healthy(found, at);
  });
  return counted;
}

/** Without a check of its own: that its agent answers */
async function healthy({ recipe }: FoundRecipe, at: Place): Promise<void> {
  if (recipe.health.length === 0) await at.forkd.pingSandbox(at.sandbox, { signal: at.signal });
  const unready = await waitForAll(recipe.health, recipe, at);
  if (unready) throw failure("BUILD_FAILED", `${recipe.name} is not healthy: ${unready.check}: ${unready.why}`, "Build it again.");
}

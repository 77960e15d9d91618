// Recipe functions for `forkd bench recipe`, which compares the start of a fresh VM with a fork.

import { basename, dirname, posix, resolve } from "node:path";
import { ForkdError } from "@forkd/runtime/errors";
import { waitForAll } from "./checks.ts";
import { RecipeFiles } from "./files.ts";
import { loadBase, loadIncluded, loadRecipe, type FoundRecipe } from "./library.ts";
import { planOf } from "./plan.ts";
import { copyFile, doStep } from "./steps.ts";
import type { Guest } from "./guest.ts";

/** Recipe in a host folder, or an included one */
export async function loadLocal(given: string): Promise<FoundRecipe> {
  if (!given.includes("/")) return loadIncluded(given);
  const folder = resolve(given);
  const names = new Set([basename(folder)]);
  for (;;) {
    const files = await RecipeFiles.at(dirname(folder), [...names]);
    const found = await loadRecipe(files, basename(folder), {});
    const beside = (await chainOf(found)).flatMap(({ recipe, folder: at }) => [
      ...(recipe.image.kind === "recipe" ? [recipe.image.recipe] : []),
      ...recipe.files.map(({ from }) => posix.join(at, from).split("/")[0] ?? ""),
    ]);
    if (beside.every((name) => names.has(name))) return found;
    for (const name of beside) names.add(name);
  }
}

/** The recipe and its bases, the one with the image first */
export async function chainOf(found: FoundRecipe): Promise<FoundRecipe[]> {
  const { image, name } = found.recipe;
  if (image.kind === "recipe") return [...(await chainOf(await loadBase(found, image.recipe))), found];
  if (image.kind !== "snapshot") return [found];
  throw new ForkdError("BAD_REQUEST", `Cannot measure ${name}: it begins with the snapshot ${image.snapshot}, which no recipe boots.`, {
    hint: "Measure a recipe that begins with an image.",
  });
}

/** Runs the recipe's steps; returns the time of those that a VM with a prepared disk repeats at every start */
export async function startUp(found: FoundRecipe, guest: Guest, isLast: boolean): Promise<number> {
  const { recipe, files, folder } = found;
  let counted = 0;
  const timed = async (work: () => Promise<void>): Promise<void> => {
    const began = performance.now();
    await work();
    counted += performance.now() - began;
  };
  for (const layer of planOf(recipe, { kind: "snapshot", id: "" }, []).layers) {
    if (layer.kind === "copy") await copyFile(layer.file, files, folder, guest);
    else if (layer.kind === "step" && layer.step.once) await doStep(layer.step, guest);
    else if (layer.kind === "step") await timed(async () => doStep(layer.step, guest));
  }
  await timed(async () => {
    const unready = await waitForAll(recipe.ready, recipe, guest);
    if (unready) throw new ForkdError("BUILD_FAILED", `${recipe.name} is not ready: ${unready.check}: ${unready.why}`);
    if (isLast) await waitUntilHealthy(found, guest);
  });
  return counted;
}

export async function waitUntilHealthy({ recipe }: FoundRecipe, guest: Guest): Promise<void> {
  const unready = await waitForAll(recipe.health, recipe, guest);
  if (unready) throw new ForkdError("BUILD_FAILED", `${recipe.name} is not healthy: ${unready.check}: ${unready.why}`);
}

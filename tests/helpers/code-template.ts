// The template of E2B's code interpreter, built from its recipe.

import { buildImage, prepareHome, resolveHome } from "@forkd/runtime";
import { loadIncluded } from "../../packages/daemon/src/recipe/library.ts";
import { shareImage, warmSnapshot } from "./shared-stores.ts";

import type { TestDaemon } from "./daemon.ts";

const TEMPLATE = "code-interpreter-v1";

export async function makeCodeTemplate({ home }: TestDaemon): Promise<void> {
  const { recipe } = await loadIncluded("e2b-code-interpreter");
  if (recipe.image.kind !== "packages") throw new Error(`the recipe of ${TEMPLATE} has no packages`);
  const { name, machine, kernels = [] } = recipe;
  const { packages, run = [] } = recipe.image;
  // The image store of the test file is also the one that the daemon uses.
  await shareImage(await prepareHome(resolveHome()), name, async (store) => buildImage(store, { name, packages, run }));
  await warmSnapshot(home, TEMPLATE, { image: name, memoryMiB: machine?.memory_mib, warmUp: { kernels } });
}

// The template of E2B's code interpreter, from its own recipe.

import { buildImage, prepareHome, resolveHome } from "@forkd/daemon";
import { BUILT_IN } from "../../packages/daemon/src/e2b/templates/built-in.ts";
import type { TestDaemon } from "./daemon.ts";

const TEMPLATE = "code-interpreter-v1";

export async function makeCodeTemplate({ controller }: TestDaemon): Promise<void> {
  const recipe = BUILT_IN[TEMPLATE];
  if (!recipe || !("packages" in recipe.image)) throw new Error(`there is no recipe for ${TEMPLATE}`);
  const { name, packages, run = [] } = recipe.image;
  // quick when it is there
  await buildImage(await prepareHome(resolveHome()), { name, packages, run });
  const { memory_mib: memoryMib, warm_up: warmUp } = recipe.snapshot;
  const kernels = warmUp?.kernels ?? [];
  await controller.createSnapshot(TEMPLATE, { image: name, memoryMib, warmUp: { kernels }, timeoutMs: 300_000 });
}

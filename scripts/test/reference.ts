// Reference time of this machine: booting and warming a VM, forking it and an eval in the child. All timeouts of the
// tests are multiples of it. Most test files use the same snapshot.

import { prepareHome } from "@forkd/runtime/home";
import { Runtime } from "@forkd/runtime/runtime";
import { ensurePythonImage, PYTHON_WARM } from "../../tests/helpers/vm.ts";
import { warmSnapshot } from "../../tests/helpers/shared-stores.ts";

import type { Home } from "@forkd/runtime/home";

export async function measureReference(home: Home): Promise<number> {
  await prepareHome(home);
  await ensurePythonImage(home);
  const started = performance.now();
  const snapshot = await warmSnapshot(home, "reference", PYTHON_WARM);
  const runtime = await Runtime.start({ home });
  try {
    const sandbox = await runtime.forkOne(snapshot);
    await sandbox.eval("sum(range(1000))", {});
    return Math.ceil(performance.now() - started);
  } finally {
    await runtime.close();
  }
}

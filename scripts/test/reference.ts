// Prints the reference time of this machine in ms: booting and warming a VM, forking it and an eval in the child. All
// timeouts of the tests are multiples of it. Most test files use the same snapshot. It is a job of the runner, which can
// so stop it, and the build of the image, at any time.

import { prepareHome, resolveHome } from "@forkd/runtime/home";
import { Runtime } from "@forkd/runtime/runtime";
import { ensurePythonImage, PYTHON_WARM } from "../../tests/helpers/vm.ts";
import { warmSnapshot } from "../../tests/helpers/shared-stores.ts";

const home = await prepareHome(resolveHome());
await ensurePythonImage(home);
const started = performance.now();
const snapshot = await warmSnapshot(home, "reference", PYTHON_WARM);
const runtime = await Runtime.start({ home });
try {
  const sandbox = await runtime.forkOne(snapshot);
  await sandbox.eval("sum(range(1000))", {});
  console.log(Math.ceil(performance.now() - started));
} finally {
  await runtime.close();
}

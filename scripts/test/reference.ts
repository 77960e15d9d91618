// Prints the reference time of this machine in ms: booting and warming a VM, forking it and an eval in the child. All
// timeouts of the tests are multiples of it, and some tests wait for a multiple of it. It is a job of the runner, which
// can so stop it, and the build of the image, at any time.

import { prepareHome, resolveHome } from "@forkd/runtime/home";
import { Runtime } from "@forkd/runtime/runtime";
import { ensurePythonImage, PYTHON_WARM } from "../../tests/helpers/vm.ts";
import { warmSnapshot } from "../../tests/helpers/shared-stores.ts";

import type { Snapshot } from "@forkd/runtime";

const home = await prepareHome(resolveHome());
await ensurePythonImage(home);
// The first boot after the host's own reads image, QEMU and guest kernel from the disk, and can take three times as long
// as any boot of the tests. It makes the snapshot that most test files use.
await measure(() => warmSnapshot(home, "reference", PYTHON_WARM));
console.log(await measure(async (runtime) => (await runtime.createSnapshot({ ...PYTHON_WARM, tag: "measured" })).snapshot));

async function measure(make: (runtime: Runtime) => Promise<Snapshot>): Promise<number> {
  const runtime = await Runtime.start({ home });
  try {
    const started = performance.now();
    const sandbox = await runtime.forkOne(await make(runtime));
    await sandbox.eval("sum(range(1000))", {});
    return Math.ceil(performance.now() - started);
  } finally {
    await runtime.close();
  }
}

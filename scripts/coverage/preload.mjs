// Preloaded into every Node process of a coverage run (NODE_OPTIONS): makes forkd use the instrumented binaries, and
// saves the agent's counters before a sandbox is killed. It appends code to two modules at load time, so the product
// needs no switch for it. The appended code is behind the offsets that coverage counts.

import module from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..", "..");
const SRC = pathToFileURL(join(ROOT, "packages", "runtime", "src")).href;
const BIN = join(ROOT, "dist", "coverage", "bin");
/** Sandboxes in unit tests have fake agents */
const isUnitTest = /\/packages\/[^/]+\/test\//.test(process.argv[1] ?? "");

const APPENDED = {
  [`${SRC}/host/installation.ts`]: `
installation.agent = ${JSON.stringify(join(BIN, "forkd-agent"))};
installation.warden = ${JSON.stringify(join(BIN, "forkd-warden"))};
`,
  ...(!isUnitTest && {
    [`${SRC}/sandbox/sandbox.ts`]: `
import { saveProfileBeforeKill } from ${JSON.stringify(new URL("agent-profile.ts", import.meta.url).href)};
saveProfileBeforeKill(Sandbox);
`,
  }),
};

// Old versions of Node, which npm may use, lack this function.
module.registerHooks?.({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    const appended = APPENDED[url];
    return appended === undefined ? loaded : { ...loaded, source: `${Buffer.from(loaded.source ?? "").toString()}\n${appended}` };
  },
});

// Each parser in Rust against new inputs; the seed differs in every run.
// Runs in make test-all only: make test runs the corpora, which contain the earlier findings.
// Runs in the background: it only needs CPU time, of which tests with VMs leave some.

import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { buildRust, fuzzRust, libFuzzer, rustTargets } from "../rust.ts";
import { FOUND } from "../targets.ts";
import { LONG_SECONDS as seconds } from "./long.ts";

const library = await libFuzzer();
const skip = library === undefined ? "libFuzzer is not installed (apt-get install libclang-rt-dev)" : false;
// At once, because these jobs end last, when other processors are idle.
describe("each parser in Rust", { concurrency: true }, () => {
  for (const name of rustTargets.keys()) {
    test(`${name}: a search of ${seconds} s of CPU time finds nothing`, { skip }, async (t) => {
      const seed = Date.now() % 2 ** 31;
      t.diagnostic(`seed ${seed}`);
      const program = await buildRust(name, library ?? "");
      const { ok, output, runs } = await fuzzRust(name, program, { seconds, seed, folder: join(FOUND, name), keep: false });
      assert.ok(ok, output.slice(-5000));
      assert.ok(runs > 1000);
    });
  }
});

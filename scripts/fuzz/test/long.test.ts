// Each parser in TypeScript against new inputs; the seed differs in every run.
// Runs in make test-all only: make test runs the corpora, which contain the earlier findings.
// Runs in the background: it only needs CPU time, of which tests with VMs leave some.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fuzz, saveFound } from "../fuzz.ts";
import { corpusOf } from "../target.ts";
import { targets } from "../targets.ts";
import { LONG_SECONDS as seconds } from "./long.ts";

// At once, because these jobs end last, when other processors are idle.
describe("each parser in TypeScript", { concurrency: true }, () => {
  for (const [name, module] of targets) {
    test(`${name}: a search of ${seconds} s of CPU time finds nothing`, async (t) => {
      const seed = Date.now() % 2 ** 32;
      t.diagnostic(`seed ${seed}`);
      const corpus = (await corpusOf(name)).map(({ bytes }) => bytes);
      const { found, summary } = await fuzz(module, { corpus, seconds, seed });
      assert.equal(found === null ? null : `${found.why}\n${await saveFound(name, found)}`, null);
      assert.ok((summary?.runs ?? 0) > corpus.length);
    });
  }
});

// Replays the corpora: no earlier finding fails again, and each target has the same outcomes.

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { dirname } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { corpusFolder, corpusOf, type Target } from "../target.ts";
import { targets } from "../targets.ts";

const MOST_BYTES = 200 * 1024;

for (const [name, module] of targets) {
  test(`${name}: each input of the corpus has an allowed outcome`, async () => {
    const { target } = (await import(pathToFileURL(module).href)) as { target: Target };
    const opened = await target.open?.();
    try {
      const outcomes = new Set<string>();
      for (const { name: file, bytes } of await corpusOf(name)) {
        assert.ok(bytes.length <= target.maxBytes, file);
        outcomes.add(await target.run(bytes));
      }
      assert.ok(outcomes.size > 3, `only these outcomes: ${[...outcomes].join("; ")}`);
    } finally {
      await opened?.[Symbol.asyncDispose]();
    }
  });
}

test("the corpora stay small", async () => {
  const names = await readdir(dirname(corpusFolder("x")));
  const sizes = await Promise.all(names.map(async (name) => (await corpusOf(name)).reduce((sum, { bytes }) => sum + bytes.length, 0)));
  assert.ok(sizes.reduce((sum, size) => sum + size, 0) < MOST_BYTES, names.map((name, at) => `${name}: ${sizes[at]}`).join(", "));
});

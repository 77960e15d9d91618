// The fuzzer itself: it passes nested checks, and reports exceptions, hangs and memory growth.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { patience } from "../../../tests/helpers/patience.ts";
import { fuzz } from "../fuzz.ts";

const planted = (name: string): string => join(import.meta.dirname, "planted", `${name}.ts`);
const SECONDS = Math.ceil(patience(2) / 1000);

test("the search finds a bug behind four unlikely checks, and the same seed finds the same", async () => {
  const opts = { corpus: [Buffer.from("........")], seconds: SECONDS, seed: 1 };
  const { found } = await fuzz(planted("nested"), opts);
  assert.match(found?.why ?? "", /all four/);
  assert.equal(Buffer.from(found?.input ?? []).toString("latin1", 0, 4), "fork");
  assert.deepEqual((await fuzz(planted("nested"), opts)).found?.input, found?.input);
});

test("inputs that hang, are slow or fill the memory are reported", async () => {
  const run = async (input: string, hangMs = patience()): Promise<string> => {
    const { found } = await fuzz(planted("greedy"), { corpus: [Buffer.from(input)], seconds: SECONDS, seed: 1, hangMs });
    assert.equal(Buffer.from(found?.input ?? []).toString(), input);
    return found?.why ?? "";
  };
  assert.match(await run("hangs", 3000), /does not end/);
  assert.match(await run("is slow"), /takes \d+ ms/);
  assert.match(await run("takes"), /bytes of memory/);
  assert.match(await run("hoards"), /out of memory|memory limit/i);
  assert.match(await run("rejects"), /rejected elsewhere/);
});

test("a target that accepts every input has no findings", async () => {
  const { found, summary } = await fuzz(planted("greedy"), { corpus: [Buffer.from("x")], seconds: 1, seed: 1 });
  assert.equal(found, null);
  assert.ok(summary.runs > 0);
});

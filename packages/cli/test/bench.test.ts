// The benchmarks are not part of the installed command line.

import assert from "node:assert/strict";
import { glob, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { loadBenchmarks } from "../src/commands/bench/load.ts";
import manifest from "../package.json" with { type: "json" };

const SRC = resolve(import.meta.dirname, "..", "src");

test("no module imports the benchmarks before a benchmark runs", async () => {
  assert.equal("@forkd/bench" in manifest.dependencies, false);
  for await (const file of glob("**/*.ts", { cwd: SRC })) {
    const text = await readFile(join(SRC, file), "utf8");
    assert.doesNotMatch(text, /^import (?!type )[^;]* from "@forkd\/bench/m, file);
    if (file !== join("commands", "bench", "load.ts")) assert.doesNotMatch(text, /import\("@forkd\/bench/, file);
  }
});

test("without the benchmarks package, the error says where they run", async () => {
  const missing = Object.assign(new Error("Cannot find package '@forkd/bench'"), { code: "ERR_MODULE_NOT_FOUND" });
  await assert.rejects(
    loadBenchmarks(() => Promise.reject(missing)),
    { code: "HOST_TOOL_MISSING", hint: /checkout/ },
  );
  const other = new Error("other");
  await assert.rejects(
    loadBenchmarks(() => Promise.reject(other)),
    other,
  );
  assert.equal(typeof (await loadBenchmarks()).benchFanout, "function");
});

// Fuzzes a parser for a given time, or replays inputs.
// Usage: scripts/fuzz/main.ts TARGET [--seconds N] [--seed N] [--keep]
//        scripts/fuzz/main.ts TARGET --replay FILE...
// --keep: adds inputs with new coverage to the corpus.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { fuzz, hashOf, saveFound } from "./fuzz.ts";
import { buildRust, fuzzRust, libFuzzer, replayRust, rustTargets } from "./rust.ts";
import { corpusFolder, corpusOf, type Target } from "./target.ts";
import { FOUND, targets } from "./targets.ts";

const DEFAULT_SECONDS = 60;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: "string", default: String(DEFAULT_SECONDS) },
    seed: { type: "string", default: String(Date.now() % 2 ** 31) },
    keep: { type: "boolean", default: false },
    replay: { type: "boolean", default: false },
  },
});
process.exitCode = await main();

async function main(): Promise<number> {
  const [name = "", ...files] = positionals;
  const [seconds, seed] = [Number(values.seconds), Number(values.seed)];
  const module = targets.get(name);
  if ((module === undefined && !rustTargets.has(name)) || !(seconds > 0) || !Number.isSafeInteger(seed)) {
    console.error("usage: scripts/fuzz/main.ts TARGET [--seconds N] [--seed N] [--keep] | TARGET --replay FILE...");
    console.error(`targets: ${[...targets.keys(), ...rustTargets.keys()].join(", ")}`);
    return 2;
  }
  if (!values.replay) console.log(`fuzz: ${name}: ${seconds} s, seed ${seed}`);
  if (module === undefined) return inRust(name, { seconds, seed, files });
  return values.replay ? replay(module, files) : search(name, module, { seconds, seed });
}

async function search(name: string, module: string, opts: { seconds: number; seed: number }): Promise<number> {
  const corpus = (await corpusOf(name)).map(({ bytes }) => bytes);
  const { found, summary } = await fuzz(module, { ...opts, corpus });
  if (found) {
    console.log(`fuzz: ${name}: FOUND ${found.why}\nfuzz: ${await saveFound(name, found)}`);
    return 1;
  }
  const { runs, ms, added, outcomes, coverage } = summary;
  const share = Math.round((100 * coverage.covered) / Math.max(1, coverage.all));
  console.log(
    `fuzz: ${name}: ${runs} inputs, ${Math.round((runs * 1000) / ms)} a second; ${outcomes} outcomes; ` +
      `${share} % of its sources executed; ${added.length} inputs reached more than the ${corpus.length} of the corpus`,
  );
  if (values.keep) for (const input of added) await writeFile(join(corpusFolder(name), hashOf(input)), input);
  return 0;
}

async function replay(module: string, files: readonly string[]): Promise<number> {
  const { target } = (await import(pathToFileURL(module).href)) as { target: Target };
  const opened = await target.open?.();
  try {
    for (const file of files) console.log(`${file}: ${await target.run(await readFile(file))}`);
    return 0;
  } finally {
    await opened?.[Symbol.asyncDispose]();
  }
}

async function inRust(name: string, opts: { seconds: number; seed: number; files: readonly string[] }): Promise<number> {
  const library = await libFuzzer();
  if (library === undefined) {
    console.error("fuzz: libFuzzer is not installed. Run: apt-get install libclang-rt-dev");
    return 1;
  }
  const program = await buildRust(name, library);
  if (values.replay) {
    const { ok, output } = await replayRust(name, program, opts.files);
    console.log(output);
    return ok ? 0 : 1;
  }
  const { ok, output, runs, perSecond, coverage, added } = await fuzzRust(name, program, {
    ...opts,
    folder: join(FOUND, name),
    keep: values.keep,
  });
  if (!ok) {
    console.log(`fuzz: ${name}: FOUND\n${output.slice(-5000)}`);
    console.log(`fuzz: again: node_modules/.bin/node scripts/fuzz/main.ts ${name} --replay dist/fuzz/${name}/FILE`);
    return 1;
  }
  console.log(`fuzz: ${name}: ${runs} inputs, ${perSecond} a second; ${coverage}; ${added} inputs reached more than the corpus`);
  return 0;
}

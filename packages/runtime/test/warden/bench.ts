// Benchmark of the steps of a branch on this machine: node packages/runtime/test/warden/bench.ts [folder]

import { rmSync } from "node:fs";
import { join } from "node:path";
import { makeBase, MIB, PAGE, Scratch, startTarget } from "./target.ts";

const ROUNDS = 7;

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

async function capture(scratch: Scratch, ramMib: number, privateMib: number, step: number): Promise<void> {
  const base = makeBase(scratch, ramMib * MIB, 100 * MIB);
  const target = await startTarget(scratch, base, ramMib * MIB);
  await target.tell(`read 0 ${(100 * MIB) / PAGE}`);
  await target.tell(`touch 0 ${(privateMib * MIB) / PAGE} ${step} 3`);
  const figures: number[][] = [[], [], [], [], []];
  for (let round = 0; round < ROUNDS; round++) {
    const delta = join(scratch.dir, "delta");
    const begun = await scratch.warden.captureBegin({ pid: target.process.pid, ramPath: base, ramBytes: ramMib * MIB, deltaPath: delta });
    await new Promise((resolve) => setTimeout(resolve, 100));
    const from = performance.now();
    const finished = await begun.finish();
    const seen = performance.now() - from;
    const committing = performance.now();
    await begun.commit();
    const committed = performance.now() - committing;
    const flat = await scratch.warden.flatten({ base, deltas: [delta], out: join(scratch.dir, "flat") });
    [begun.micros / 1000, finished.micros / 1000, seen, committed, flat.micros / 1000].forEach((value, at) => figures[at]?.push(value));
    rmSync(delta);
    rmSync(join(scratch.dir, "flat"));
  }
  const [begin, finish, seen, commit, flatten] = figures.map((values) => median(values).toFixed(2));
  process.stdout.write(
    `${ramMib} MiB RAM, ${privateMib} MiB private, every ${step}. page: begin ${begin} ms, finish ${finish} ms (${seen} ms for the caller), commit ${commit} ms, flatten of 100 + ${privateMib} MiB ${flatten} ms\n`,
  );
  await target.process.kill("SIGKILL");
  await target.process.exited;
  rmSync(base);
}

const scratch = await Scratch.make(process.argv[2]);
try {
  process.stdout.write(`${JSON.stringify(await scratch.warden.info())}\n`);
  for (const ramMib of [256, 1024, 4096]) for (const privateMib of [1, 10, 100]) await capture(scratch, ramMib, privateMib, 1);
  await capture(scratch, 1024, 100, 3);
} finally {
  await scratch.remove();
}

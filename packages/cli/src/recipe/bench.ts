// How soon a fork of a recipe is ready, compared with a VM that boots and does all its steps.

import { chainOf, startUp, waitUntilHealthy } from "@forkd/daemon";
import { working } from "../terminal/progress.ts";
import { removed, temporaryName, withSandbox } from "../guest/temporary.ts";

import type { FoundRecipe, Guest } from "@forkd/daemon";
import type { Controller } from "forkd";
import type { Cli } from "../cli.ts";

/** The daemon's name for the step after the boot: a VM that is not forked does not need it */
const FREEZING = "Freezing";

export type RecipeFigure = { recipe: string; rounds: number; fork_ms: number; fresh_ms: number; times: number };
type Rounds = { fork: number[]; fresh: number[] };
type InTurns = (sides: Record<keyof Rounds, () => Promise<number>>) => Promise<Rounds>;
type Work = { cli: Cli; forkd: Controller };

/** `tag`: of the snapshot that was built from the recipe */
export async function benchRecipe(
  work: Work,
  { found, tag }: { found: FoundRecipe; tag: string },
  measure: { inTurns: InTurns; median: (all: number[]) => number },
): Promise<RecipeFigure> {
  const { name } = found.recipe;
  const chain = await chainOf(found);
  const { fork, fresh } = await working(`Measuring ${name}`, async () =>
    measure.inTurns({ fork: async () => forkToReady(work, found, tag), fresh: async () => bootToReady(work, chain) }),
  );
  const [forkMs, freshMs] = [Math.round(measure.median(fork)), Math.round(measure.median(fresh))];
  return { recipe: name, rounds: fork.length, fork_ms: forkMs, fresh_ms: freshMs, times: Math.round(freshMs / forkMs) };
}

async function forkToReady(work: Work, found: FoundRecipe, tag: string): Promise<number> {
  const began = performance.now();
  return withSandbox(work.cli, work.forkd, tag, async (sandbox) => {
    await untilHealthy(work, found, sandbox);
    return performance.now() - began;
  });
}

/** Steps marked `once` and the copying of files are done but not counted, because a fresh machine has a prepared disk */
async function bootToReady(work: Work, chain: readonly FoundRecipe[]): Promise<number> {
  const { cli, forkd } = work;
  const [root] = chain;
  if (!root) throw new Error("a recipe without a beginning");
  const { name, machine, kernels } = root.recipe;
  const env = Object.assign({}, ...chain.map(({ recipe }) => recipe.env ?? {})) as Record<string, string>;
  let counted = 0;
  const began = performance.now();
  const onProgress = ({ step }: { step: string }): void => {
    if (step === FREEZING && counted === 0) counted = performance.now() - began;
  };
  const tag = temporaryName("bench");
  try {
    await forkd.createSnapshot(tag, {
      image: name,
      memoryMib: machine?.memory_mib,
      vcpus: machine?.vcpus,
      cpu: machine?.cpu,
      diskMib: machine?.disk_mib,
      warmUp: { kernels: kernels ?? [] },
      env,
      idempotencyKey: null,
      timeoutMs: 0,
      onProgress,
      signal: cli.signal,
    });
    return await withSandbox(cli, forkd, tag, async (sandbox) => {
      for (const found of chain) {
        const { mode, allow } = found.recipe.network;
        await forkd.setNetwork(sandbox, { mode, allow }, { signal: cli.signal });
        const isLast = found === chain.at(-1);
        counted += await startUp(found, guestOf(work, sandbox), isLast);
      }
      return counted;
    });
  } finally {
    await removed(async (signal) => forkd.deleteSnapshot(tag, { force: true, signal }));
  }
}

/** Without checks of its own, a fork is healthy when its agent answers */
async function untilHealthy(work: Work, found: FoundRecipe, sandbox: string): Promise<void> {
  if (found.recipe.health.length === 0) await work.forkd.pingSandbox(sandbox, { signal: work.cli.signal });
  await waitUntilHealthy(found, guestOf(work, sandbox));
}

/** A sandbox through the SDK */
function guestOf({ cli: { signal }, forkd }: Work, id: string): Guest {
  return {
    id,
    signal,
    exec: async (args, opts) => forkd.execCommand(id, [...args], { ...opts, signal }),
    eval: async (code, opts) => forkd.evalCode(id, code, { ...opts, signal }),
    start: async (args, opts) => void (await forkd.startProcess(id, [...args], { ...opts, signal })),
    write: async (path, content, { mode }) => void (await forkd.writeFile(id, path, content, { mode, parents: true, signal })),
    unpack: async (path, archive) => void (await forkd.writeTar(id, path, archive, { signal })),
    chown: async (path, opts) => forkd.chownFile(id, path, { ...opts, signal }),
    ports: async () => (await forkd.listPorts(id, { signal })).map(({ port }) => port),
    get: async (port, path, { timeoutSecs }) => {
      const late = AbortSignal.timeout(Math.ceil(timeoutSecs * 1000));
      const answer = await forkd.fetchPort(id, port, path, { signal: AbortSignal.any([signal, late]) });
      return { status: answer.status, body: await answer.text() };
    },
    process: async (tag) => {
      const { state, exit_code: exitCode } = await forkd.getProcess(id, tag, { signal });
      const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
      const output = { stdout: "", stderr: "" };
      for await (const event of forkd.watchProcess(id, tag, { follow: false, signal }))
        if (event.type === "stdout" || event.type === "stderr")
          output[event.type] += decoders[event.type].decode(event.bytes, { stream: true });
      return { output, exitCode: state === "ended" ? exitCode : null };
    },
  };
}

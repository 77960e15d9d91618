// Job scheduler: several jobs at a time, background jobs beside them, and exclusive jobs alone.

import type { Job } from "./job.ts";

/**
 * Runs the jobs in order, exclusive ones last. Background jobs begin first and take no place of the others. Stops early
 * if the signal is aborted
 */
export async function runAll(
  jobs: readonly Job[],
  run: (job: Job) => Promise<void>,
  opts: { atOnce: number; signal: AbortSignal },
): Promise<void> {
  const shared = jobs.filter(({ alone, background }) => alone === null && background === null);
  const background = jobs.filter((job) => job.background !== null).map(run);
  const worker = async (): Promise<void> => {
    for (let job = shared.shift(); job !== undefined && !opts.signal.aborted; job = shared.shift()) await run(job);
  };
  await Promise.all([...background, ...Array.from({ length: opts.atOnce }, worker)]);
  for (const job of jobs.filter(({ alone }) => alone !== null)) {
    if (opts.signal.aborted) return;
    await run(job);
  }
}

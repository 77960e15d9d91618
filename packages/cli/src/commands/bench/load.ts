// Loads the benchmarks, a package of the repository that is not installed with the command line.

import { codeOf, failure } from "../../errors.ts";

import type * as benchmarks from "@forkd/bench";

type Benchmarks = typeof benchmarks;

/** @throws ForkdError when only the command line is installed */
export async function loadBenchmarks(load: () => Promise<Benchmarks> = () => import("@forkd/bench")): Promise<Benchmarks> {
  try {
    return await load();
  } catch (error) {
    if (codeOf(error) !== "ERR_MODULE_NOT_FOUND") throw error;
    throw failure(
      "HOST_TOOL_MISSING",
      "Cannot run a benchmark: the package @forkd/bench is not installed.",
      "Run './forkd bench' in a checkout of the repository; 'forkd bench --tag TAG' needs no package.",
      error,
    );
  }
}

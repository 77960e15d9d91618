// Default number of children that start at the same time.

import { availableParallelism } from "node:os";

/** More than the number of cores delays all of them */
export const DEFAULT_PARALLELISM: number = availableParallelism() + 1;

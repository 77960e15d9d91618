// How many children start at the same time unless told otherwise.

import { availableParallelism } from "node:os";

/** More than the cores can do only makes all of them late */
export const DEFAULT_PARALLELISM: number = availableParallelism() + 1;

// Length of the search in each target.

/** CPU time, so that a busy machine does not shorten it; `FUZZ_SECONDS=600 make test-all` searches for longer */
export const LONG_SECONDS = Number(process.env["FUZZ_SECONDS"] ?? 60);

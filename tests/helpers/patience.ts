// Test timeouts: multiples of the time that this machine needed for a boot, a fork and an eval at the start of the run.
// A constant would be too short on a busy machine and too long on a fast one.

/** Used when a test file runs without the runner, which measures the reference */
const ASSUMED_REFERENCE_MS = 10_000;

/** The reference is measured on an idle machine; during the run, three test files compete for it */
const BUSY = 2;

const measured = Number(process.env["FORKD_TEST_REFERENCE_MS"]);

const REFERENCE_MS = measured > 0 ? measured : ASSUMED_REFERENCE_MS;

/** Timeout in ms. `times` scales with the amount of work; 20 is enough for any operation of one VM */
export function patience(times = 20): number {
  return Math.ceil(REFERENCE_MS * BUSY * times);
}

// Switch between `make test` and the longer run of `make test-all`.

/** Whether this is a run of make test-all */
export const isAll: boolean = process.env["FORKD_TEST_ALL"] === "1";

/** Number of repetitions in the short and in the long run */
export function rounds(once: number, all: number): number {
  return isAll ? all : once;
}

/** The newest version of a client; all versions in the long run. `versions` is sorted newest first */
export function newestUnlessAll<T>(versions: Record<string, T>): Record<string, T> {
  return Object.fromEntries(Object.entries(versions).slice(0, isAll ? undefined : 1));
}

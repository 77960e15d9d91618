// How long-running work tells its caller where it is.

/** One report: `done` and `total` in bytes or items, whichever the step counts */
export type ProgressEvent = { step: string; done?: number; total?: number; unit?: "bytes" | "items" };

export type Progress = (event: ProgressEvent) => void;

/** For work that hears of bytes piece by piece; negative ones have to come again */
export function countBytes(progress: Progress | undefined, step: string, total: number): (bytes: number) => void {
  let done = 0;
  return (bytes) => {
    done += bytes;
    progress?.({ step, done, total, unit: "bytes" });
  };
}

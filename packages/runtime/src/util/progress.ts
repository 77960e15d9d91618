// Progress reports of long-running work.

/**
 * One report: `done` and `total` in bytes or items, as the step counts them; `note`: a permanent warning instead of a step. Of a build:
 * `ms` for a step that is complete, `cached` for one that was complete before.
 */
export type ProgressEvent = {
  step: string;
  done?: number;
  total?: number;
  unit?: "bytes" | "items";
  note?: boolean;
  ms?: number;
  cached?: boolean;
};

export type Progress = (event: ProgressEvent) => void;

/** Adds up bytes that are reported in pieces; a negative number takes back bytes that must be transferred again */
export function countBytes(progress: Progress | undefined, step: string, total: number): (bytes: number) => void {
  let done = 0;
  return (bytes) => {
    done += bytes;
    progress?.({ step, done, total, unit: "bytes" });
  };
}

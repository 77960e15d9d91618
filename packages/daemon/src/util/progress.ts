// How long-running work tells its caller where it is.

/** One report: `done` and `total` in bytes or items, whichever the step counts */
export type ProgressEvent = { step: string; done?: number; total?: number; unit?: "bytes" | "items" };

export type Progress = (event: ProgressEvent) => void;

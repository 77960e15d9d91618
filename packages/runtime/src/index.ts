// Public interface of the VM library, for programs and other packages. The daemon imports single files by subpath.

import { Writer } from "./util/codec.ts";
import { attachRecord, CHANNEL, encodeFrame, T } from "./agent/wire/protocol.ts";
import { COMPRESS_THREADS } from "./pack/compress.ts";
import { preparePack } from "./pack/prepare.ts";
import { GO_ON } from "./agent/hold.ts";

export { ERROR_CODES, ForkdError, messageOf } from "./errors.ts";
export { prepareHome, resolveHome } from "./home.ts";
export { runDoctor } from "./doctor/doctor.ts";
export { installation } from "./host/installation.ts";
export { buildImage } from "./image/build.ts";
export { ensureGuestKernel } from "./guest-kernel/guest-kernel.ts";
export { importImage } from "./image/import.ts";
export { ImageStore } from "./image/store.ts";
export { Runtime } from "./runtime.ts";
export { DEFAULT_PARALLELISM } from "./util/parallelism.ts";
export { countLeftovers, vmmsOf } from "./vmm/leftovers.ts";

export type { ErrorCode } from "./errors.ts";
export type { Home } from "./home.ts";
export type { Check, CheckStatus } from "./doctor/checks.ts";
export type { DoctorReport } from "./doctor/report.ts";
export type { GuestKernel } from "./guest-kernel/guest-kernel.ts";
export type { SnapshotTimings } from "./sandbox/boot.ts";
export type { BranchResult } from "./sandbox/branch.ts";
export type { ForkOutcome, RuntimeOptions } from "./runtime.ts";
export type { Sandbox } from "./sandbox/sandbox.ts";
export type { Snapshot } from "./snapshot/store.ts";
export type { Progress, ProgressEvent } from "./util/progress.ts";

/** For the benchmark of packs */
export const pack = { COMPRESS_THREADS, preparePack };

/** Raw protocol, for the benchmark that measures the cost of the layers above it */
export const wire = { attachRecord, CHANNEL, encodeFrame, GO_ON, T, Writer };

// Everything other packages may use.

import { Writer } from "./guest/codec.ts";
import { attachRecord, CHANNEL, encodeFrame, T } from "./guest/protocol.ts";
import { COMPRESS_THREADS } from "./pack/compress.ts";
import { preparePack } from "./pack/prepare.ts";
import { restoreArgs } from "./vmm/qemu/args.ts";

export { resolveConfig } from "./config.ts";
export { ERROR_CODES, ForkdError, messageOf } from "./errors.ts";
export { prepareHome, resolveHome } from "./home.ts";
export { runDoctor } from "./host/doctor.ts";
export { installation } from "./host/installation.ts";
export { countLeftovers } from "./host/run-dir.ts";
export { buildImage } from "./image/build.ts";
export { ensureGuestKernel } from "./image/guest-kernel.ts";
export { importImage } from "./image/import.ts";
export { ImageStore } from "./image/store.ts";
export { Runtime } from "./sandbox/runtime.ts";
export { DEFAULT_PARALLELISM } from "./util/parallelism.ts";
export { findQemu } from "./vmm/qemu/binary.ts";

export type { ErrorCode } from "./errors.ts";
export type { Home } from "./home.ts";
export type { Check, CheckStatus } from "./host/checks.ts";
export type { DoctorReport } from "./host/report.ts";
export type { GuestKernel } from "./image/guest-kernel.ts";
export type { SnapshotTimings } from "./sandbox/boot.ts";
export type { BranchResult } from "./sandbox/branch.ts";
export type { ForkOutcome } from "./sandbox/runtime-options.ts";
export type { Sandbox } from "./sandbox/sandbox.ts";
export type { Snapshot } from "./snapshot/store.ts";
export type { QemuBinary } from "./vmm/qemu/binary.ts";
export type { Progress, ProgressEvent } from "./util/progress.ts";

/** For the benchmark of packs */
export const pack = { COMPRESS_THREADS, preparePack };

/** The bare wire, for the benchmark that measures what our layers cost */
export const wire = { attachRecord, CHANNEL, encodeFrame, restoreArgs, T, Writer };

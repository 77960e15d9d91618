// Converts a tar stream into a squashfs, which guests mount as their root.

import { open } from "node:fs/promises";
import type { Readable, Writable } from "node:stream";
import { ForkdError } from "../errors.ts";
import { startConfined, type ConfinementPolicy } from "../host/confined.ts";
import type { Progress } from "../util/progress.ts";

/** Default limit of an image's unpacked size */
export const DEFAULT_MAX_BYTES = 16 * 1024 ** 3;

/** Guests decompress in emulated code: with lz4, Python starts as fast as from an uncompressed image, with gzip a quarter slower */
const COMPRESSION = ["-comp", "lz4"];

/**
 * sqfstar 4.5 corrupts the image when it searches for duplicates: after files with equal first blocks and different ends, a fragment
 * is overwritten, and the guest gets EIO. Without the search the image of a Debian system is 1 to 2 % larger.
 */
const NO_DUPLICATES = "-no-duplicates";

/** Upper bound of the overhead of an image over its content */
const OVERHEAD_BYTES = 256 * 1024 ** 2;
/** In place of sqfstar's default, a quarter of the host's memory */
const MEMORY = ["-mem", "512M"];

const REPORT_EVERY = 4 * 1024 ** 2;

export type SquashfsOpts = {
  /** default: 0755, owned by root */
  root?: { mode: number; uid: number; gid: number };
  /** time of the newest file in seconds; set when equal content must give an equal image */
  newest?: number;
  maxBytes: number;
  confinement?: ConfinementPolicy | undefined;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

/** Owners, modes, times and extended attributes come from the tar, except for the root folder, whose entry sqfstar ignores */
export async function writeSquashfs(tar: Readable, path: string, opts: SquashfsOpts): Promise<void> {
  const root = opts.root ?? { mode: 0o755, uid: 0, gid: 0 };
  const rootFlags = ["-root-mode", root.mode.toString(8), "-root-uid", String(root.uid), "-root-gid", String(root.gid)];
  const argv: [string, ...string[]] = [
    "sqfstar",
    "-quiet",
    "-no-progress",
    "-exit-on-error",
    "-force",
    "-xattrs",
    NO_DUPLICATES,
    ...rootFlags,
    ...COMPRESSION,
    ...MEMORY,
    path,
  ];
  // sqfstar 4.5 ignores -root-time and gives the root folder the current time; only this bounds it
  const env = { SOURCE_DATE_EPOCH: String(opts.newest ?? Math.floor(Date.now() / 1000)) };
  // a confined program can write only existing files
  await (await open(path, "wx", 0o600)).close();
  const { signal, confinement } = opts;
  // sqfstar 4.5 ignores -root-uid and gives the root folder to its own user
  const user = { uid: root.uid, gid: root.gid };
  const sqfstar = await startConfined(argv, {
    signal,
    env,
    user,
    confinement,
    write: [path],
    maxFileBytes: opts.maxBytes + OVERHEAD_BYTES,
  });
  sqfstar.stdout.resume();
  const report = progressCounter(opts);
  try {
    for await (const chunk of tar as AsyncIterable<Buffer>) {
      report(chunk.length);
      if (!sqfstar.stdin.writable) {
        // sqfstar stops reading at the end mark; the rest is padding. When it failed instead, this throws.
        await sqfstar.done;
        continue;
      }
      if (!sqfstar.stdin.write(chunk)) await drainedOrClosed(sqfstar.stdin);
    }
  } catch (error) {
    sqfstar.kill();
    await sqfstar.done.catch(() => undefined);
    if (opts.signal?.aborted) throw new ForkdError("CANCELLED", "Writing the image was cancelled.", { cause: error });
    throw error;
  }
  sqfstar.stdin.end();
  await sqfstar.done;
}

function progressCounter(opts: SquashfsOpts): (bytes: number) => void {
  let total = 0;
  let reported = 0;
  return (bytes) => {
    total += bytes;
    if (total > opts.maxBytes)
      throw new ForkdError("IMAGE_TOO_LARGE", `The image is too large: its files are more than ${opts.maxBytes} bytes.`);
    if (total - reported < REPORT_EVERY) return;
    reported = total;
    opts.progress?.({ step: "Writing the image", done: total, unit: "bytes" });
  };
}

async function drainedOrClosed(sink: Writable): Promise<void> {
  if (sink.closed || !sink.writableNeedDrain) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      sink.off("drain", done).off("close", done);
      resolve();
    };
    sink.on("drain", done).on("close", done);
  });
}

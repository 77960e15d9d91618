// Turns a tar stream into the squashfs a guest mounts as its root.

import type { Readable, Writable } from "node:stream";
import { ForkdError } from "../errors.ts";
import { startPiped } from "../host/run.ts";
import type { Progress } from "../util/progress.ts";

/** Default limit of an image's unpacked size */
export const DEFAULT_MAX_BYTES = 16 * 1024 ** 3;

/** The guest unpacks in emulated code: with lz4, Python starts about as fast as from an uncompressed image of twice the size, with gzip a quarter slower */
const COMPRESSION = ["-comp", "lz4"];

const REPORT_EVERY = 4 * 1024 ** 2;

export type SquashfsOpts = {
  /** default: 0755, owned by root */
  root?: { mode: number; uid: number; gid: number };
  /** time of the newest file in seconds, given where equal content must give an equal image */
  newest?: number;
  maxBytes: number;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

/** Owners, modes, times and extended attributes are those of the tar, except for the root folder, whose entry sqfstar ignores */
export async function writeSquashfs(tar: Readable, path: string, opts: SquashfsOpts): Promise<void> {
  const root = opts.root ?? { mode: 0o755, uid: 0, gid: 0 };
  const rootFlags = ["-root-mode", root.mode.toString(8), "-root-uid", String(root.uid), "-root-gid", String(root.gid)];
  const argv = ["sqfstar", "-quiet", "-no-progress", "-exit-on-error", "-xattrs", ...rootFlags, ...COMPRESSION, path];
  // sqfstar 4.5 gives the root folder the time of the clock, whatever -root-time says; only this bounds it
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(opts.newest ?? Math.floor(Date.now() / 1000)) };
  const sqfstar = startPiped(argv, { signal: opts.signal, env });
  sqfstar.stdout.resume();
  const report = progressCounter(opts);
  try {
    for await (const chunk of tar as AsyncIterable<Buffer>) {
      report(chunk.length);
      if (!sqfstar.stdin.writable) {
        // sqfstar stops reading at the end mark, and what follows is padding; when it failed instead, this throws
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

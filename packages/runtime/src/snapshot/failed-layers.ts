// Layers whose fsync failed. Linux reports a failed write once: a second fsync of the same file succeeds although its data is lost.
// Several snapshots share a layer, and more can be made of a running sandbox, so the failure is recorded by file, outside of every snapshot.

import { mkdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { messageOf } from "../errors.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { bootId } from "../util/boot-id.ts";
import { namesIn } from "../util/names-in.ts";
import { syncPath } from "../util/sync-path.ts";

const note = z.strictObject({ boot: z.string(), error: z.string() });

export class FailedLayers {
  readonly #dir: string;
  /** messages by file; on a full disk a note cannot be written, and then lasts as long as this process */
  readonly #known = new Map<string, string>();

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Syncs a layer to disk. Throws the error of its first failed fsync, also of another process in this boot */
  async sync(path: string): Promise<void> {
    const file = await identityOf(path);
    const known = this.#known.get(file) ?? (await this.#noted(file));
    if (known !== undefined) throw Object.assign(new Error(known), { syscall: "fsync" });
    try {
      await syncPath(path);
    } catch (error) {
      if (isFailedSync(error)) await this.#note(file, messageOf(error));
      throw error;
    }
  }

  /** Removes the notes of earlier boots: snapshots with those layers name the same boot, and are refused for that */
  async sweep(): Promise<void> {
    for (const name of await namesIn(this.#dir)) {
      if ((await this.#noted(name)) === undefined) await rm(join(this.#dir, name), { force: true });
    }
  }

  async #noted(file: string): Promise<string | undefined> {
    let text: string;
    try {
      text = await readFile(join(this.#dir, file), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
    const stored = note.safeParse(parsed(text));
    return stored.success && stored.data.boot === (await bootId()) ? stored.data.error : undefined;
  }

  /** Not synced: it is for this boot only */
  async #note(file: string, error: string): Promise<void> {
    this.#known.set(file, error);
    try {
      await mkdir(this.#dir, { recursive: true, mode: 0o700 });
      await writeFileAtomic(join(this.#dir, file), JSON.stringify({ boot: await bootId(), error }), "quick");
    } catch (failure) {
      if ((failure as NodeJS.ErrnoException).code === undefined) throw failure;
    }
  }
}

export function isFailedSync(error: unknown): error is Error {
  return (error as NodeJS.ErrnoException).syscall === "fsync";
}

/** Notes are written atomically, so an incomplete one is from before a power cut: undefined, as for other earlier boots */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Equal for all hard links of a file; includes the creation time, because inodes are reused */
async function identityOf(path: string): Promise<string> {
  const { ino, birthtimeNs } = await stat(path, { bigint: true });
  return `${ino}-${birthtimeNs}`;
}

// Snapshot tags: a small file per tag with the snapshot's id, and a folder while a tag is reserved. A tag is NAME or OWNER/NAME.

import { randomBytes } from "node:crypto";
import { mkdir, readFile, rename, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { ForkdError } from "../errors.ts";
import { claimFolder, folderAgeMs, ownerOf } from "../host/owner.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { namesIn } from "../util/names-in.ts";
import { syncPath } from "../util/sync-path.ts";
import { checkQualifiedName, fileOf, nameOf } from "../util/name.ts";
import { isAlive, startTimeOf } from "../util/process-id.ts";

const RESERVED = ".reserved.tmp";
export const SNAPSHOT_ID = /^sn-[a-z2-7]{16}$/;
/** Writing a tag takes a moment; an older temporary file is abandoned */
const UNFINISHED_MS = 60_000;

export class Tags {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Throws EXISTS when it is in use, so that two branches never write the same tag */
  async reserve(tag: string, opts: { replace?: boolean | undefined } = {}): Promise<void> {
    checkQualifiedName("Tag", tag);
    // a tag in the form of an id would hide the snapshot with that id
    if (SNAPSHOT_ID.test(tag)) throw new ForkdError("BAD_NAME", `Tag ${tag} is not a valid name: it looks like the id of a snapshot.`);
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    const reservation = join(this.#dir, `${fileOf(tag)}${RESERVED}`);
    if (!(await this.#claim(tag, reservation))) {
      const abandoned = await isAbandoned(reservation);
      if (abandoned) await this.release(tag);
      if (!abandoned || !(await this.#claim(tag, reservation)))
        throw new ForkdError("EXISTS", `Cannot make snapshot ${tag}: another one of that name is being made.`);
    }
    if (!opts.replace && (await this.idOf(tag)) !== undefined) {
      await this.release(tag);
      throw new ForkdError("EXISTS", `Cannot make snapshot ${tag}: it exists already.`);
    }
  }

  /** Renames a folder with an owner file into place. The rename fails on a folder with an owner, so only one of two callers succeeds */
  async #claim(tag: string, reservation: string): Promise<boolean> {
    const claim = this.#passing(tag);
    try {
      await mkdir(claim, { mode: 0o700 });
      await claimFolder(claim);
      await rename(claim, reservation);
      return true;
    } catch (error) {
      await rm(claim, { recursive: true, force: true });
      const code = (error as NodeJS.ErrnoException).code ?? "";
      if (code === "EEXIST" || code === "ENOTEMPTY") return false;
      if (code === "ENOSPC" || code === "EDQUOT")
        throw new ForkdError("NO_SPACE", `Cannot make snapshot ${tag}: the disk is full.`, { cause: error });
      throw error;
    }
  }

  /** Whether a running process has reserved it */
  async isReserved(tag: string): Promise<boolean> {
    const reservation = join(this.#dir, `${fileOf(tag)}${RESERVED}`);
    return (await namesIn(this.#dir)).includes(basename(reservation)) && !(await isAbandoned(reservation));
  }

  /** By a rename first: a folder that is being emptied could be reserved by another process, and be emptied for that one */
  async release(tag: string): Promise<void> {
    const away = this.#passing(tag);
    try {
      await rename(join(this.#dir, `${fileOf(tag)}${RESERVED}`), away);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      throw error;
    }
    await rm(away, { recursive: true, force: true });
  }

  /** A temporary name with the owner's id; leftovers are swept */
  #passing(tag: string): string {
    return join(this.#dir, `${fileOf(tag)}.${process.pid}.${randomBytes(6).toString("hex")}.tmp`);
  }

  /** Removes leftovers of ended processes: reservations and incomplete tags */
  async sweep(): Promise<void> {
    for (const name of await namesIn(this.#dir)) {
      if (!name.endsWith(".tmp")) continue;
      const path = join(this.#dir, name);
      const abandoned = name.endsWith(RESERVED) ? await isAbandoned(path) : await isUnfinished(path);
      if (abandoned) await rm(path, { recursive: true, force: true });
    }
  }

  async idOf(tag: string): Promise<string | undefined> {
    try {
      return await readFile(join(this.#dir, fileOf(tag)), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  /** "quick": a power cut can lose it before `sync` is called */
  async set(tag: string, id: string, safety: "durable" | "quick"): Promise<void> {
    await writeFileAtomic(this.#pathOf(tag), id, safety);
  }

  /** Waits until every tag of a snapshot is on disk */
  async sync(id: string): Promise<void> {
    for (const [tag, named] of await this.all()) {
      if (named !== id) continue;
      try {
        await syncPath(this.#pathOf(tag));
      } catch (error) {
        // renamed or removed since; that operation syncs itself
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
      await syncPath(this.#dir);
    }
  }

  /** Atomic: neither both nor none exist at any moment, nor after a power cut */
  async rename(tag: string, to: string): Promise<void> {
    const from = this.#pathOf(tag);
    await syncPath(from);
    await rename(from, this.#pathOf(to));
    await syncPath(this.#dir);
  }

  async remove(tag: string): Promise<void> {
    await rm(this.#pathOf(tag), { force: true });
    await syncPath(this.#dir);
  }

  /** Every tag with its snapshot's id */
  async all(): Promise<Map<string, string>> {
    const ids = new Map<string, string>();
    for (const file of await namesIn(this.#dir)) {
      if (file.endsWith(".tmp")) continue;
      const tag = nameOf(file);
      const id = await this.idOf(tag);
      if (id !== undefined) ids.set(tag, id);
    }
    return ids;
  }

  #pathOf(tag: string): string {
    return join(this.#dir, fileOf(checkQualifiedName("Tag", tag)));
  }
}

async function isAbandoned(reservation: string): Promise<boolean> {
  const owner = await ownerOf(reservation);
  return owner === undefined || !(await isAlive(owner));
}

/** A temporary file of writeFileAtomic, whose name has the writer's pid, of an ended process */
async function isUnfinished(path: string): Promise<boolean> {
  const pid = Number(/\.(\d+)\.[a-z0-9]+\.tmp$/.exec(path)?.[1]);
  return (await startTimeOf(pid)) === undefined || (await folderAgeMs(path)) > UNFINISHED_MS;
}

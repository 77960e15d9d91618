// Names of snapshots: a small file per tag that holds the snapshot's id, and a folder while a name is being given.

import { randomBytes } from "node:crypto";
import { mkdir, readFile, rename, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { ForkdError } from "../errors.ts";
import { claimFolder, folderAgeMs, ownerOf } from "../host/owner.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { namesIn } from "../util/names-in.ts";
import { checkName } from "../util/name.ts";
import { isAlive, startTimeOf } from "../util/process-id.ts";

const RESERVED = ".reserved.tmp";
export const SNAPSHOT_ID = /^sn-[a-z2-7]{16}$/;
/** A tag is written in a moment */
const UNFINISHED_MS = 60_000;

export class Tags {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Throws EXISTS when it is taken, so that two branches never write the same one */
  async reserve(tag: string, opts: { replace?: boolean | undefined } = {}): Promise<void> {
    checkName("Tag", tag);
    // a tag that looks like an id would stand in front of the snapshot that has it
    if (SNAPSHOT_ID.test(tag)) throw new ForkdError("BAD_NAME", `Tag ${tag} is not a valid name: it looks like the id of a snapshot.`);
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    const reservation = join(this.#dir, `${tag}${RESERVED}`);
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

  /** A folder with its owner inside takes the place of none, and of no other one that has an owner: of two callers one succeeds */
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

  /** Whether somebody who lives is giving it to a snapshot now */
  async isReserved(tag: string): Promise<boolean> {
    const reservation = join(this.#dir, `${tag}${RESERVED}`);
    return (await namesIn(this.#dir)).includes(basename(reservation)) && !(await isAbandoned(reservation));
  }

  /** At once: a folder that is being emptied could be taken by the next one, and be emptied for it */
  async release(tag: string): Promise<void> {
    const away = this.#passing(tag);
    try {
      await rename(join(this.#dir, `${tag}${RESERVED}`), away);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      throw error;
    }
    await rm(away, { recursive: true, force: true });
  }

  /** A name for a moment, which says by whom; what is left of it is swept */
  #passing(tag: string): string {
    return join(this.#dir, `${tag}.${process.pid}.${randomBytes(6).toString("hex")}.tmp`);
  }

  /** Removes what writers that are gone left: reservations, and tags that were never finished */
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
      return await readFile(join(this.#dir, tag), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  async set(tag: string, id: string): Promise<void> {
    await writeFileAtomic(join(this.#dir, checkName("Tag", tag)), id, "quick");
  }

  /** At once: at no moment are there both or neither */
  async rename(tag: string, to: string): Promise<void> {
    await rename(join(this.#dir, checkName("Tag", tag)), join(this.#dir, checkName("Tag", to)));
  }

  async remove(tag: string): Promise<void> {
    await rm(join(this.#dir, checkName("Tag", tag)), { force: true });
  }

  /** Every tag with the id it names */
  async all(): Promise<Map<string, string>> {
    const ids = new Map<string, string>();
    for (const tag of await namesIn(this.#dir)) {
      if (tag.endsWith(".tmp")) continue;
      const id = await this.idOf(tag);
      if (id !== undefined) ids.set(tag, id);
    }
    return ids;
  }
}

async function isAbandoned(reservation: string): Promise<boolean> {
  const owner = await ownerOf(reservation);
  return owner === undefined || !(await isAlive(owner));
}

/** A tag that was being written (see writeFileAtomic, whose files carry the writer's pid) by a process that is gone */
async function isUnfinished(path: string): Promise<boolean> {
  const pid = Number(/\.(\d+)\.[a-z0-9]+\.tmp$/.exec(path)?.[1]);
  return (await startTimeOf(pid)) === undefined || (await folderAgeMs(path)) > UNFINISHED_MS;
}

// Open folders and files of a share: each is opened relative to an open parent, so that no link can lead out.

import { constants, type BigIntStats } from "node:fs";
import { open, readlink, type FileHandle } from "node:fs/promises";
import { holdsNoFiles, isHidden, type Hidden } from "./hidden.ts";
import { Errno } from "./record.ts";

const { O_RDONLY, O_NOFOLLOW, O_DIRECTORY, O_NONBLOCK, O_NOCTTY } = constants;
/** O_PATH: opens a name without side effects on a device or a FIFO */
const O_PATH = 0x200000;
/** After this time the path is resolved again: the file may have been moved or replaced */
const KEEP_MS = 1000;
/** For all shares together: guests must not use up the daemon's file descriptors */
const MOST_OPEN = 256;

/** Open handles in the order of opening, with the functions that close them */
const kept = new Map<Slot, () => void>();

/** The path of a name in an open folder, as bytes: names may be invalid UTF-8 */
export function below(folder: string, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${folder}/`), name]);
}

type Opened = { handle: FileHandle; found: BigIntStats };
type Slot = { opened: Promise<Opened>; since: number; users: number; dropped: boolean };

export class Handles {
  readonly #root: string;
  readonly #hidden: Hidden;
  readonly #slots = new Map<string, Slot>();
  #sweep: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(root: string, hidden: Hidden) {
    this.#root = root;
    this.#hidden = hidden;
  }

  /** Calls `work` with the path of an open folder, which is valid during the call */
  async folder<V>(path: readonly Buffer[], work: (at: string, handle: FileHandle) => Promise<V>): Promise<V> {
    return this.#inFolder(path, async ({ handle }) => work(pathOf(handle), handle));
  }

  /** Calls `work` with an open file; ESTALE when the path leads to another inode (0: any) */
  async file<V>(path: readonly Buffer[], inode: bigint, work: (handle: FileHandle) => Promise<V>): Promise<V> {
    const key = keyOf("f", path);
    const attempt = async (): Promise<V | typeof ANOTHER> =>
      this.#use(
        key,
        async () => this.#openFile(path),
        async (opened) => (inode === 0n || opened.found.ino === inode ? work(opened.handle) : ANOTHER),
      );
    let result = await attempt();
    if (result === ANOTHER) {
      // it may have been replaced after it was opened
      this.#drop(key);
      result = await attempt();
    }
    if (result === ANOTHER) throw new Errno("ESTALE");
    return result;
  }

  /** Handles in use are closed afterwards */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#sweep);
    for (const key of this.#slots.keys()) this.#drop(key);
  }

  async #inFolder<V>(path: readonly Buffer[], work: (folder: Opened) => Promise<V>): Promise<V> {
    return this.#use(keyOf("d", path), async () => (path.length === 0 ? this.#openRoot() : this.#openPlace(path, O_DIRECTORY)), work);
  }

  async #openRoot(): Promise<Opened> {
    const handle = await open(this.#root, O_PATH | O_NOFOLLOW | O_DIRECTORY);
    return closedOnFailure(handle, async () => {
      // a parent folder may have become a link since it was shared
      if ((await readlink(pathOf(handle))) !== this.#root) throw new Errno("ENOENT");
      return this.#shown(handle);
    });
  }

  /** Opens a path below the share's root with O_PATH, without following a link at its end */
  async #openPlace(path: readonly Buffer[], flags = 0): Promise<Opened> {
    const name = path.at(-1) ?? Buffer.alloc(0);
    return this.#inFolder(path.slice(0, -1), async (folder) => {
      const handle = await open(below(pathOf(folder.handle), name), O_PATH | O_NOFOLLOW | flags);
      return closedOnFailure(handle, async () => this.#shown(handle, folder.found.dev));
    });
  }

  async #openFile(path: readonly Buffer[]): Promise<Opened> {
    if (path.length === 0) throw new Errno("EISDIR");
    const place = await this.#openPlace(path);
    try {
      if (place.found.isDirectory()) throw new Errno("EISDIR");
      if (!place.found.isFile()) throw new Errno("EINVAL");
      return { ...place, handle: await open(pathOf(place.handle), O_RDONLY | O_NONBLOCK | O_NOCTTY) };
    } finally {
      await place.handle.close();
    }
  }

  /** @param dev file system of the parent folder, which was checked */
  async #shown(handle: FileHandle, dev?: bigint): Promise<Opened> {
    const found = await handle.stat({ bigint: true });
    const isElsewhere = found.dev !== dev && (await holdsNoFiles(pathOf(handle)));
    if (isElsewhere || isHidden(this.#hidden, found)) throw new Errno("ENOENT");
    return { handle, found };
  }

  async #use<V>(key: string, opener: () => Promise<Opened>, work: (opened: Opened) => Promise<V>): Promise<V> {
    let slot = this.#slots.get(key);
    if (!slot || performance.now() - slot.since > KEEP_MS) {
      this.#drop(key);
      slot = this.#add(key, opener());
    }
    slot.users++;
    try {
      return await work(await slot.opened);
    } finally {
      slot.users--;
      release(slot);
    }
  }

  #add(key: string, opened: Promise<Opened>): Slot {
    const slot: Slot = { opened, since: performance.now(), users: 0, dropped: false };
    // a failed open is retried by the next caller
    opened.catch(() => this.#slots.get(key) === slot && this.#drop(key));
    if (this.#closed) {
      slot.dropped = true;
      return slot;
    }
    this.#slots.set(key, slot);
    kept.set(slot, () => this.#drop(key));
    const [letGo] = kept.values();
    if (kept.size > MOST_OPEN) letGo?.();
    this.#sweep ??= setTimeout(() => this.#dropOld(), KEEP_MS).unref();
    return slot;
  }

  #dropOld(): void {
    this.#sweep = undefined;
    const now = performance.now();
    for (const [key, { since }] of this.#slots) if (now - since > KEEP_MS) this.#drop(key);
    if (this.#slots.size > 0) this.#sweep = setTimeout(() => this.#dropOld(), KEEP_MS).unref();
  }

  #drop(key: string): void {
    const slot = this.#slots.get(key);
    if (!slot) return;
    this.#slots.delete(key);
    kept.delete(slot);
    slot.dropped = true;
    release(slot);
  }
}

const ANOTHER = Symbol("another file");

function pathOf(handle: FileHandle): string {
  return `/proc/self/fd/${handle.fd}`;
}

function keyOf(kind: "d" | "f", path: readonly Buffer[]): string {
  return `${kind}/${path.map((name) => name.toString("latin1")).join("/")}`;
}

function release(slot: Slot): void {
  if (!slot.dropped || slot.users > 0) return;
  // The caller of the open got its error; closing a handle that was only read cannot lose data.
  slot.opened.then(async ({ handle }) => handle.close()).catch(() => undefined);
}

async function closedOnFailure<V>(handle: FileHandle, work: () => Promise<V>): Promise<V> {
  try {
    return await work();
  } catch (error) {
    await handle.close();
    throw error;
  }
}

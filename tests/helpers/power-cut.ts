// Power cut simulator: replays a record of all changes to a folder (tests/programs/recorder.c) up to any point. Changes
// that were not synced by then are kept, lost, or partly lost.
//
// Only the POSIX guarantees hold: the content of a synced file and the names in a synced folder, each as of the start
// of the sync. Changes of one folder become durable in order; a rename becomes durable in both folders at once.

import { execFile } from "node:child_process";
import { link, mkdir, open, readdir, readFile, realpath, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const SOURCE = resolve(import.meta.dirname, "..", "programs", "recorder.c");
/** For larger files only the size matters, not the content */
const MAX_CONTENT = 4 * 1024 * 1024;

/** One recorded operation; `say` is a message that the test wrote between operations */
export type Entry =
  | { op: "create" | "mkdir"; dir: number; name: string; ino: number }
  | { op: "link"; dir: number; name: string; ino: number; size: number }
  | { op: "unlink"; dir: number; name: string }
  | { op: "rename"; dir: number; name: string; ino: number; to_dir: number; to_name: string; list?: List }
  | { op: "write"; ino: number; at: number; length: number; data?: string }
  | { op: "truncate"; ino: number; size: number }
  | { op: "sync"; ino: number; number: string; size: number; list?: List }
  | { op: "synced"; number: string }
  | { op: "say"; what: unknown };

/** Name, inode and size of each entry; the size of a folder is -1 */
type List = [name: string, ino: number, size: number][];

type Change = { at: number; bytes: Buffer | number } | { size: number };
type File = { content: Buffer; size: number; pending: Change[] };
type Folder = Map<string, number>;
type Step = { folders: number[]; apply: (folders: Map<number, Folder>) => void };

/**
 * "all": nothing is lost. "no-data": all names survive, unsynced data is lost. "nothing": only synced changes survive.
 * Number: random, with this seed
 */
export type Loss = "all" | "no-data" | "nothing" | number;

/** Makes the environment that records a process's changes to a store, under a boot id that differs from the host's */
export async function recorderIn(dir: string, store: string): Promise<{ env: Record<string, string>; log: string }> {
  const [library, log, boot] = ["recorder.so", "record.jsonl", "boot-id"].map((name) => join(dir, name)) as [string, string, string];
  await run("cc", ["-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl", "-pthread"]);
  await writeFile(boot, "the boot before the power cut\n");
  const root = await realpath(store);
  return { env: { LD_PRELOAD: library, FORKD_RECORD_ROOT: root, FORKD_RECORD_LOG: log, FORKD_RECORD_BOOT: boot }, log };
}

export async function readRecord(path: string): Promise<Entry[]> {
  const lines = (await readFile(path, "utf8")).trim().split("\n");
  return lines.map((line) => JSON.parse(line) as Entry);
}

/** Whether the newest rename to this name is on disk: a sync of its folder began after it and has ended */
export async function isRenameSynced(log: string, folder: string, name: string): Promise<boolean> {
  const { ino } = await stat(folder);
  const entries = await readRecord(log);
  const at = entries.findLastIndex((entry) => entry.op === "rename" && entry.to_dir === ino && entry.to_name === name);
  const later = entries.slice(at + 1);
  return later.some(
    (begun) => begun.op === "sync" && begun.ino === ino && later.some((ended) => ended.op === "synced" && ended.number === begun.number),
  );
}

export class Disk {
  readonly #root: number;
  readonly #files = new Map<number, File>();
  /** durable content of each folder; a folder without an entry is empty */
  readonly #folders = new Map<number, Folder>();
  /** operations that are not durable, oldest first */
  #steps: Step[] = [];
  /** folders as the process sees them */
  readonly #seen = new Map<number, Folder>();
  readonly #syncs = new Map<string, () => void>();
  /** Own number of each file and folder, because the host reuses the inodes of removed ones */
  readonly #numbers = new Map<number, number>();
  #last = 0;

  private constructor(root: number) {
    this.#root = this.#numberOf(root);
  }

  #numberOf(ino: number, isNew = false): number {
    const known = this.#numbers.get(ino);
    if (known !== undefined && !isNew) return known;
    this.#numbers.set(ino, ++this.#last);
    return this.#last;
  }

  /** Content of a folder before the record begins, all of it durable */
  static async of(path: string): Promise<Disk> {
    const disk = new Disk((await stat(path)).ino);
    await disk.#scan(path);
    return disk;
  }

  async #scan(path: string): Promise<void> {
    const ino = this.#numberOf((await stat(path)).ino);
    const folder: Folder = new Map();
    for (const entry of await readdir(path, { withFileTypes: true })) {
      const own = join(path, entry.name);
      if (!entry.isFile() && !entry.isDirectory()) continue;
      const info = await stat(own);
      const number = this.#numberOf(info.ino);
      folder.set(entry.name, number);
      if (entry.isDirectory()) await this.#scan(own);
      else this.#files.set(number, { content: info.size <= MAX_CONTENT ? await readFile(own) : Buffer.of(), size: info.size, pending: [] });
    }
    this.#folders.set(ino, folder);
    this.#seen.set(ino, new Map(folder));
  }

  apply(given: Entry): void {
    const entry = this.#numbered(given);
    switch (entry.op) {
      case "create":
        this.#files.set(entry.ino, { content: Buffer.of(), size: 0, pending: [] });
        return this.#enter(entry.dir, entry.name, entry.ino);
      case "mkdir":
        for (const folders of [this.#folders, this.#seen]) folders.set(entry.ino, new Map());
        return this.#enter(entry.dir, entry.name, entry.ino);
      case "link":
        this.#look(entry.ino, entry.size);
        return this.#enter(entry.dir, entry.name, entry.ino);
      case "unlink": {
        const removed = this.#seen.get(entry.dir)?.get(entry.name);
        this.#step([entry.dir], (folders) => folders.get(entry.dir)?.delete(entry.name));
        return this.#forget(removed);
      }
      case "rename": {
        if (entry.list) this.#find(entry.ino, entry.list);
        const replaced = this.#seen.get(entry.to_dir)?.get(entry.to_name);
        this.#step([entry.dir, entry.to_dir], (folders) => {
          folders.get(entry.dir)?.delete(entry.name);
          folders.get(entry.to_dir)?.set(entry.to_name, entry.ino);
        });
        return this.#forget(replaced);
      }
      case "write":
        this.#file(entry.ino).pending.push({
          at: entry.at,
          bytes: entry.data === undefined ? entry.length : Buffer.from(entry.data, "hex"),
        });
        return undefined;
      case "truncate":
        this.#file(entry.ino).pending.push({ size: entry.size });
        return undefined;
      case "sync":
        if (entry.list) this.#syncFolder(entry.ino, entry.number, entry.list);
        else this.#syncFile(entry.ino, entry.number, entry.size);
        return undefined;
      case "synced":
        this.#syncs.get(entry.number)?.();
        this.#syncs.delete(entry.number);
        return undefined;
      case "say":
        return undefined;
    }
  }

  #numbered(given: Entry): Entry {
    const entry = { ...given };
    if ("dir" in entry) entry.dir = this.#numberOf(entry.dir);
    if ("to_dir" in entry) entry.to_dir = this.#numberOf(entry.to_dir);
    if ("ino" in entry) entry.ino = this.#numberOf(entry.ino, entry.op === "create" || entry.op === "mkdir");
    if ("list" in entry && entry.list) entry.list = entry.list.map(([name, ino, size]) => [name, this.#numberOf(ino), size]);
    return entry;
  }

  /**
   * Forgets a file without names, so that the next file with its inode is a new one. The warden and QEMU are not
   * recorded: a file of theirs with that inode has no `create` entry and would be taken for the removed one.
   */
  #forget(number: number | undefined): void {
    if (number === undefined || [...this.#seen.values()].some((folder) => [...folder.values()].includes(number))) return;
    for (const [ino, own] of this.#numbers) if (own === number) this.#numbers.delete(ino);
  }

  #enter(dir: number, name: string, ino: number): void {
    this.#step([dir], (folders) => folders.get(dir)?.set(name, ino));
  }

  #step(folders: number[], apply: Step["apply"]): void {
    apply(this.#seen);
    this.#steps.push({ folders, apply });
  }

  #file(ino: number): File {
    const file = this.#files.get(ino) ?? { content: Buffer.of(), size: 0, pending: [] };
    this.#files.set(ino, file);
    return file;
  }

  /** The warden or QEMU may have written the file: adopt its size */
  #look(ino: number, size: number): void {
    const file = this.#file(ino);
    if (contentOf(file, file.pending.length).size !== size) file.pending.push({ size });
  }

  /** The same for the names in a folder */
  #find(ino: number, list: List): void {
    const seen = this.#seen.get(ino);
    if (!seen) for (const folders of [this.#folders, this.#seen]) folders.set(ino, new Map());
    const names = new Map(list.map(([name, own]) => [name, own]));
    const gone = [...(seen ?? [])].filter(([name]) => !names.has(name));
    for (const [name] of gone) this.#step([ino], (folders) => folders.get(ino)?.delete(name));
    for (const [name, own, size] of list) {
      if (size >= 0) this.#look(own, size);
      else if (!this.#seen.has(own)) for (const folders of [this.#folders, this.#seen]) folders.set(own, new Map());
      if (this.#seen.get(ino)?.get(name) !== own) this.#enter(ino, name, own);
    }
    for (const [, own] of gone) this.#forget(own);
  }

  #syncFile(ino: number, number: string, size: number): void {
    this.#look(ino, size);
    const file = this.#file(ino);
    const changes = [...file.pending];
    this.#syncs.set(number, () => {
      // another sync may have made part of these changes durable already
      const now = file.pending.findLastIndex((change) => changes.includes(change)) + 1;
      Object.assign(file, contentOf(file, now));
      file.pending = file.pending.slice(now);
    });
  }

  #syncFolder(ino: number, number: string, list: List): void {
    this.#find(ino, list);
    const until = [...this.#steps];
    this.#syncs.set(number, () => {
      const chosen = closed(until, (step) => step.folders.includes(ino));
      for (const step of until) if (chosen.has(step) && this.#steps.includes(step)) step.apply(this.#folders);
      this.#steps = this.#steps.filter((step) => !chosen.has(step));
    });
  }

  /** Writes a folder as a power cut at this point could leave it */
  async write(to: string, loss: Loss): Promise<void> {
    const chance = typeof loss === "number" ? chanceOf(loss) : () => (loss === "nothing" ? 0 : 1);
    const folders = new Map([...this.#folders].map(([ino, folder]) => [ino, new Map(folder)]));
    // Of each folder's changes a prefix survives: a lost change is not followed by a durable one
    const cut = new Set<number>();
    const share = chance();
    for (const step of this.#steps) {
      if (chance() <= 1 - share || step.folders.some((ino) => cut.has(ino))) for (const ino of step.folders) cut.add(ino);
      else step.apply(folders);
    }
    const made = new Map<number, string>();
    const some = (count: number): number => (loss === "all" ? count : typeof loss === "number" ? Math.floor(chance() * (count + 1)) : 0);
    const fill = async (ino: number, path: string): Promise<void> => {
      await mkdir(path, { mode: 0o700 });
      for (const [name, own] of folders.get(ino) ?? []) {
        const target = join(path, name);
        const before = made.get(own);
        if (folders.has(own)) await fill(own, target);
        else if (before !== undefined) await link(before, target);
        else {
          made.set(own, target);
          const file = this.#file(own);
          const { content, size } = contentOf(file, some(file.pending.length));
          await using out = await open(target, "wx", 0o600);
          await out.write(content.subarray(0, size));
          await out.truncate(size);
        }
      }
    };
    await fill(this.#root, to);
  }
}

/** Adds the earlier changes of the same folders, which must be durable first */
function closed(steps: readonly Step[], isWanted: (step: Step) => boolean): Set<Step> {
  const chosen = new Set<Step>();
  const folders = new Set<number>();
  for (const step of steps.toReversed()) {
    if (!isWanted(step) && !step.folders.some((ino) => folders.has(ino))) continue;
    chosen.add(step);
    for (const ino of step.folders) folders.add(ino);
  }
  return chosen;
}

function contentOf({ content: before, size: sizeBefore, pending }: File, count: number): { content: Buffer; size: number } {
  const changes = pending.slice(0, count);
  if (changes.length === 0) return { content: before, size: sizeBefore };
  const ends = changes.map((change) => ("size" in change ? 0 : change.at + lengthOf(change.bytes))).filter((end) => end <= MAX_CONTENT);
  const content = Buffer.concat([before], Math.max(before.length, ...ends));
  let size = sizeBefore;
  for (const change of changes) {
    if ("size" in change) {
      content.fill(0, Math.min(change.size, content.length));
      size = change.size;
      continue;
    }
    const end = change.at + lengthOf(change.bytes);
    if (typeof change.bytes !== "number" && end <= MAX_CONTENT) change.bytes.copy(content, change.at);
    size = Math.max(size, end);
  }
  return { content: content.subarray(0, size), size };
}

function lengthOf(bytes: Buffer | number): number {
  return typeof bytes === "number" ? bytes : bytes.length;
}

/** Random numbers between 0 and 1, reproducible from the seed */
function chanceOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

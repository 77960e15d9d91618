// What callers can choose about files.

import type { CallOptions, OnceOptions } from "./options.ts";

/** Every call about files takes these */
export type FileOptions = CallOptions & {
  /** User of the guest whose rights count and who owns what is new; without it root */
  user?: string | undefined;
};

export type FileOnceOptions = FileOptions & OnceOptions;

export type StatFileOptions = FileOptions & {
  /** What a link points to instead of the link itself */
  follow?: boolean | undefined;
};

export type ReadFileOptions = FileOptions & { offset?: number | undefined; length?: number | undefined };

export type ListFilesOptions = FileOptions & {
  /** 1: only what is in the directory itself. @default 1 */
  depth?: number | undefined;
  /** Entries per page, up to 10000; without it, all */
  limit?: number | undefined;
  /** `nextCursor` of the page before */
  cursor?: string | undefined;
};

export type MakeDirectoryOptions = FileOnceOptions & {
  /** Octal, such as "755" */
  mode?: string | undefined;
  /** Also makes the directories above it */
  parents?: boolean | undefined;
};

export type MoveFileOptions = FileOnceOptions & {
  /** Replaces a file, a link or an empty directory */
  overwrite?: boolean | undefined;
};

export type CopyFileOptions = MoveFileOptions & {
  /** Directories with all they hold */
  recursive?: boolean | undefined;
};

export type RemoveFileOptions = FileOptions & {
  /** A directory with all it holds */
  recursive?: boolean | undefined;
};

export type ChmodOptions = FileOnceOptions & {
  /** Also everything below; links are not followed */
  recursive?: boolean | undefined;
};

export type ChownOptions = FileOnceOptions & {
  /** Name or number; without it the owner stays */
  owner?: string | undefined;
  /** Name or number; without it the group stays */
  group?: string | undefined;
  /** Also everything below; links are not followed */
  recursive?: boolean | undefined;
};

export type ReadTarOptions = FileOptions & {
  /** Only files, directories and links: no devices and pipes */
  plain?: boolean | undefined;
};

export type WatchFilesOptions = {
  /** Also everything below, and what is made there later */
  recursive?: boolean | undefined;
  /** Changes are gathered for so long, and repeated ones told once. @default 50 */
  debounceMs?: number | undefined;
  user?: string | undefined;
  /** Ends it */
  signal?: AbortSignal | undefined;
};

export type WriteFileOptions = FileOptions & {
  /** Octal, such as "644" */
  mode?: string | undefined;
  append?: boolean | undefined;
  /** Writes from there on into a file that keeps the rest */
  offset?: number | undefined;
  /** Makes the folders above it */
  parents?: boolean | undefined;
};

/** What can be written: text, bytes, or bytes that come bit by bit */
export type FileContent = string | Uint8Array | AsyncIterable<Uint8Array>;

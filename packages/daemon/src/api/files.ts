// The files of a sandbox.

import * as z from "zod";
import { flag } from "./common.ts";

/** Absolute, or `base64:` and the bytes of an absolute path: the second form is for names that are not UTF-8 */
// oxlint-disable-next-line no-control-regex -- NUL is what no path can hold
const PATH_PATTERN = /^(\/[^\0]*|base64:L[w-z0-9+/][A-Za-z0-9+/]*={0,2})$/;
// oxlint-disable-next-line no-control-regex -- NUL is what no path can hold
const TARGET_PATTERN = /^[^\0]+$/;
const MODE_PATTERN = /^[0-7]{3,4}$/;

const path = z
  .string()
  .min(1)
  .max(4096)
  .regex(PATH_PATTERN, "must be absolute")
  .meta({ description: "Absolute path inside the guest; base64: and its bytes where it is not UTF-8" });

const user = z
  .string()
  .min(1)
  .max(256)
  .optional()
  .meta({ description: "User of the guest whose rights count and who owns what is new; without it root" });

const mode = z.string().regex(MODE_PATTERN, "must be an octal mode such as 644").meta({ description: "Octal, such as 644" });

const recursive = z.boolean().optional().meta({ description: "Also everything below; links are not followed" });
const overwrite = z
  .boolean()
  .optional()
  .meta({ description: "Replaces a file, a link or an empty directory at the new path; without it that is FILE_EXISTS" });

const offset = z.coerce.number().int().min(0).optional();

export const statFileQuery = z.strictObject({
  path,
  follow: flag.meta({ description: "What a link points to instead of the link itself" }),
  user,
});

export const readFileQuery = z.strictObject({ path, offset, length: z.coerce.number().int().min(0).optional(), user });

export const writeFileQuery = z
  .strictObject({
    path,
    mode: mode.optional(),
    append: flag,
    offset: offset.meta({ description: "Writes from there on into a file that keeps the rest" }),
    parents: flag,
    user,
  })
  .refine(({ append, offset }) => !append || offset === undefined, { path: ["offset"], error: "cannot be given with append" });

export const listFilesQuery = z.strictObject({
  path,
  depth: z.coerce.number().int().min(1).max(10_000).default(1).meta({ description: "1: only what is in the directory itself" }),
  limit: z.coerce.number().int().min(1).max(10_000).default(1000).meta({ description: "Entries per page" }),
  cursor: z
    .string()
    .max(8192)
    .regex(/^[\w-]*$/, "must be the X-Next-Cursor of the page before")
    .optional()
    .meta({ description: "X-Next-Cursor of the page before" }),
  user,
});

export const removeFileQuery = z.strictObject({ path, recursive: flag, user });

export const watchFilesQuery = z.strictObject({
  path,
  recursive: flag,
  debounce_ms: z.coerce
    .number()
    .int()
    .min(0)
    .max(60_000)
    .default(50)
    .meta({ description: "Changes are gathered for so long, and repeated ones told once" }),
  user,
});

export const readTarQuery = z.strictObject({
  path,
  plain: flag.meta({ description: "Only files, directories and links: no devices and pipes" }),
  user,
});

export const writeTarQuery = z.strictObject({ path, user });

export const makeDirectory = z
  .strictObject({
    path,
    mode: mode.optional(),
    parents: z.boolean().optional().meta({ description: "Also makes the directories above it, and one that is there is as good" }),
    user,
  })
  .meta({ id: "MakeDirectory" });

export const moveFile = z.strictObject({ from: path, to: path, overwrite, user }).meta({ id: "MoveFile" });

export const copyFile = z.strictObject({ from: path, to: path, recursive, overwrite, user }).meta({ id: "CopyFile" });

export const chmodFile = z.strictObject({ path, mode, recursive, user }).meta({ id: "ChmodFile" });

const principal = z.string().min(1).max(256);

export const chownFile = z
  .strictObject({
    path,
    owner: principal.optional().meta({ description: "Name or number; without it the owner stays" }),
    group: principal.optional().meta({ description: "Name or number; without it the group stays" }),
    recursive,
    user,
  })
  .refine(({ owner, group }) => owner !== undefined || group !== undefined, { path: ["owner"], error: "is required, or a group" })
  .meta({ id: "ChownFile" });

const target = z.string().max(4096).regex(TARGET_PATTERN, "must be a path").meta({ description: "What it points to, as it is" });

export const makeSymlink = z.strictObject({ target, path, user }).meta({ id: "MakeSymlink" });

const info = {
  kind: z.enum(["file", "directory", "symlink", "char", "block", "fifo", "socket"]),
  mode: z.string(),
  uid: z.int(),
  gid: z.int(),
  owner: z.string().nullable().meta({ description: "Name of the owner in the guest; null when the number has none" }),
  group: z.string().nullable(),
  size: z.int(),
  mtime_ms: z.number(),
  target: z.string().nullable().meta({ description: "Of a link: what it points to" }),
};

export const fileInfo = z.strictObject(info).meta({ id: "FileInfo" });

export const listedFile = z
  .strictObject({
    path: z.string().meta({ description: "As every call takes it" }),
    name: z.string(),
    name_base64: z.string().optional().meta({ description: "Of a name that is not UTF-8, whose name is not exact" }),
    ...info,
    errno: z.string().optional().meta({ description: "Why what the directory holds could not be read" }),
  })
  .meta({ id: "ListedFile" });

export const fileEvent = z
  .strictObject({
    type: z.enum(["ready", "created", "modified", "attributes", "removed", "moved", "overflow", "error"]).meta({
      description:
        "ready: from here on nothing is missed; moved: from `from`; overflow: changes were lost, look again; error: the watch ended, see `problem`",
    }),
    path: z.string().optional(),
    from: z.string().optional(),
    directory: z.boolean().optional(),
    problem: z.strictObject({ error: z.string(), code: z.string() }).optional(),
  })
  .meta({ id: "FileEvent" });

export const writeResult = z.strictObject({ bytes: z.int() }).meta({ id: "WriteResult" });

export const unpackResult = z
  .strictObject({ entries: z.int(), bytes: z.int().meta({ description: "Of the content of files" }) })
  .meta({ id: "UnpackResult" });

export type StatFileQuery = z.infer<typeof statFileQuery>;
export type ReadFileQuery = z.infer<typeof readFileQuery>;
export type WriteFileQuery = z.infer<typeof writeFileQuery>;
export type ListFilesQuery = z.infer<typeof listFilesQuery>;
export type RemoveFileQuery = z.infer<typeof removeFileQuery>;
export type WatchFilesQuery = z.infer<typeof watchFilesQuery>;
export type ReadTarQuery = z.infer<typeof readTarQuery>;
export type WriteTarQuery = z.infer<typeof writeTarQuery>;
export type MakeDirectory = z.infer<typeof makeDirectory>;
export type MoveFile = z.infer<typeof moveFile>;
export type CopyFile = z.infer<typeof copyFile>;
export type ChmodFile = z.infer<typeof chmodFile>;
export type ChownFile = z.infer<typeof chownFile>;
export type MakeSymlink = z.infer<typeof makeSymlink>;
export type FileInfo = z.infer<typeof fileInfo>;
export type ListedFile = z.infer<typeof listedFile>;
export type FileEvent = z.infer<typeof fileEvent>;
export type WriteResult = z.infer<typeof writeResult>;
export type UnpackResult = z.infer<typeof unpackResult>;

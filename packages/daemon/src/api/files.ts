// The files of a sandbox.

import * as z from "zod";
import { bySandbox, flag } from "./common.ts";
import type { Route } from "./route.ts";

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

const statFileQuery = z.strictObject({
  path,
  follow: flag.meta({ description: "What a link points to instead of the link itself" }),
  user,
});

const readFileQuery = z.strictObject({
  path,
  offset: offset.meta({ description: "First byte" }),
  length: z.coerce.number().int().min(0).optional().meta({ description: "Number of bytes; without it, to the end" }),
  user,
});

const writeFileQuery = z
  .strictObject({
    path,
    mode: mode.optional(),
    append: flag.meta({ description: "Adds to the end of the file" }),
    offset: offset.meta({ description: "Writes from there on into a file that keeps the rest" }),
    parents: flag.meta({ description: "Creates the directories above it" }),
    user,
  })
  .refine(({ append, offset }) => !append || offset === undefined, { path: ["offset"], error: "cannot be given with append" });

const listFilesQuery = z.strictObject({
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

const diskUsageQuery = z.strictObject({ path, user });

const diskUsage = z
  .strictObject({
    bytes: z.int().meta({ description: "Disk space of the file or tree; a file with several names counts once" }),
    entries: z.int().meta({ description: "Files, directories and links, the path itself included" }),
    total_bytes: z.int().meta({ description: "Size of the file system of the path" }),
    used_bytes: z.int().meta({ description: "In use on that file system, by everything" }),
  })
  .meta({ id: "DiskUsage" });

const removeFileQuery = z.strictObject({ path, recursive: flag.meta({ description: "A directory with its content" }), user });

const watchFilesQuery = z.strictObject({
  path,
  recursive: flag.meta({ description: "Also everything below, and directories that are created later" }),
  debounce_ms: z.coerce
    .number()
    .int()
    .min(0)
    .max(60_000)
    .default(50)
    .meta({ description: "Changes are collected for so long, and repeated ones reported once; 0: each change is reported" }),
  user,
});

const readTarQuery = z.strictObject({
  path,
  plain: flag.meta({ description: "Only files, directories and links: no devices and pipes" }),
  user,
});

const writeTarQuery = z.strictObject({ path, user });

const makeDirectory = z
  .strictObject({
    path,
    mode: mode.optional(),
    parents: z.boolean().optional().meta({ description: "Also creates the directories above it; an existing directory is not an error" }),
    user,
  })
  .meta({ id: "MakeDirectory" });

const moveFile = z.strictObject({ from: path, to: path, overwrite, user }).meta({ id: "MoveFile" });

const copyFile = z.strictObject({ from: path, to: path, recursive, overwrite, user }).meta({ id: "CopyFile" });

const chmodFile = z.strictObject({ path, mode, recursive, user }).meta({ id: "ChmodFile" });

const principal = z.string().min(1).max(256);

const chownFile = z
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

const makeSymlink = z.strictObject({ target, path, user }).meta({ id: "MakeSymlink" });

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

const fileInfo = z.strictObject(info).meta({ id: "FileInfo" });

const listedFile = z
  .strictObject({
    path: z.string().meta({ description: "As every call takes it" }),
    name: z.string(),
    name_base64: z.string().optional().meta({ description: "Of a name that is not UTF-8, whose name is not exact" }),
    ...info,
    errno: z.string().optional().meta({ description: "Why what the directory holds could not be read" }),
  })
  .meta({ id: "ListedFile" });

const fileEvent = z
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

const writeResult = z.strictObject({ bytes: z.int() }).meta({ id: "WriteResult" });

const unpackResult = z
  .strictObject({ entries: z.int(), bytes: z.int().meta({ description: "Of the content of files" }) })
  .meta({ id: "UnpackResult" });

export const fileRoutes = {
  readFile: {
    method: "GET",
    path: "/v1/sandboxes/:id/files",
    scope: "exec",
    summary: "Reads a file of the guest",
    params: bySandbox,
    query: readFileQuery,
    responses: { 200: "bytes" },
  },
  writeFile: {
    method: "PUT",
    path: "/v1/sandboxes/:id/files",
    scope: "exec",
    summary: "Writes a file of the guest; it appears when it is complete",
    params: bySandbox,
    query: writeFileQuery,
    body: "bytes",
    responses: { 200: writeResult },
  },
  removeFile: {
    method: "DELETE",
    path: "/v1/sandboxes/:id/files",
    scope: "exec",
    summary: "Removes a file, a link or a directory of the guest",
    params: bySandbox,
    query: removeFileQuery,
    responses: { 204: "empty" },
  },
  statFile: {
    method: "GET",
    path: "/v1/sandboxes/:id/files/stat",
    scope: "exec",
    summary: "Kind, size, mode and owner of a file of the guest",
    params: bySandbox,
    query: statFileQuery,
    responses: { 200: fileInfo },
  },
  diskUsage: {
    method: "GET",
    path: "/v1/sandboxes/:id/files/usage",
    scope: "exec",
    summary: "Disk space of a file or tree of the guest, and of its file system",
    params: bySandbox,
    query: diskUsageQuery,
    responses: { 200: diskUsage },
  },
  listFiles: {
    method: "GET",
    path: "/v1/sandboxes/:id/files/list",
    scope: "exec",
    summary: "Lists a directory of the guest",
    params: bySandbox,
    query: listFilesQuery,
    responses: { 200: z.array(listedFile) },
  },
  makeDirectory: {
    method: "POST",
    path: "/v1/sandboxes/:id/files/mkdir",
    scope: "exec",
    summary: "Creates a directory in the guest",
    params: bySandbox,
    body: makeDirectory,
    responses: { 204: "empty" },
  },
  moveFile: {
    method: "POST",
    path: "/v1/sandboxes/:id/files/move",
    scope: "exec",
    summary: "Moves a file or directory of the guest",
    params: bySandbox,
    body: moveFile,
    responses: { 204: "empty" },
  },
  copyFile: {
    method: "POST",
    path: "/v1/sandboxes/:id/files/copy",
    scope: "exec",
    summary: "Copies a file or directory inside the guest; the copy appears when it is complete",
    params: bySandbox,
    body: copyFile,
    responses: { 204: "empty" },
  },
  chmodFile: {
    method: "POST",
    path: "/v1/sandboxes/:id/files/chmod",
    scope: "exec",
    summary: "Sets the mode of a file or a tree of the guest",
    params: bySandbox,
    body: chmodFile,
    responses: { 204: "empty" },
  },
  chownFile: {
    method: "POST",
    path: "/v1/sandboxes/:id/files/chown",
    scope: "exec",
    summary: "Sets owner and group of a file or a tree of the guest",
    params: bySandbox,
    body: chownFile,
    responses: { 204: "empty" },
  },
  makeSymlink: {
    method: "POST",
    path: "/v1/sandboxes/:id/files/symlink",
    scope: "exec",
    summary: "Creates a symbolic link in the guest",
    params: bySandbox,
    body: makeSymlink,
    responses: { 204: "empty" },
  },
  watchFiles: {
    method: "GET",
    path: "/v1/sandboxes/:id/files/watch",
    scope: "exec",
    summary: "Changes in a directory of the guest, as server-sent events",
    params: bySandbox,
    query: watchFilesQuery,
    responses: { 200: "events" },
    events: fileEvent,
  },
  readTar: {
    method: "GET",
    path: "/v1/sandboxes/:id/files/tar",
    scope: "exec",
    summary: "A directory or one file of the guest, as a tar archive",
    params: bySandbox,
    query: readTarQuery,
    responses: { 200: "bytes" },
    media: "application/x-tar",
  },
  writeTar: {
    method: "PUT",
    path: "/v1/sandboxes/:id/files/tar",
    scope: "exec",
    summary: "Extracts a tar archive into a directory of the guest, which is created if missing",
    params: bySandbox,
    query: writeTarQuery,
    body: "bytes",
    responses: { 200: unpackResult },
    media: "application/x-tar",
  },
} as const satisfies Record<string, Route>;

export type StatFileQuery = z.infer<typeof statFileQuery>;
export type DiskUsageQuery = z.infer<typeof diskUsageQuery>;
export type DiskUsage = z.infer<typeof diskUsage>;
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

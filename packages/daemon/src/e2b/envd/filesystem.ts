// envd: filesystem service.

import { posix } from "node:path";
import * as z from "zod";
import { ForkdError } from "@forkd/runtime/errors";
import { accountOf, pathFor, type Account } from "./accounts.ts";
import { messageOf } from "./connect.ts";
import { entriesOf, type Entry } from "./entry.ts";
import { ensureFolder, statOf } from "./guest-writes.ts";
import type { ListedFile } from "../../api/files.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { SandboxWork } from "../work.ts";

const MAX_DEPTH = 10_000;
const PAGE = 10_000;
/** Limits of one list, which is built in memory */
const MAX_ENTRIES = 50_000;
const MAX_PATH_BYTES = 8 * 1024 * 1024;

const pathRequest = z.object({ path: z.string().default("") });
const moveRequest = z.object({ source: z.string(), destination: z.string() });
const listRequest = pathRequest.extend({ depth: z.coerce.number().int().min(0).max(MAX_DEPTH).default(0) });

export async function stat(work: SandboxWork): Promise<Answer> {
  const { path } = await asked(work, pathRequest);
  return { status: 200, body: { entry: await entryAt(work, path) } };
}

export async function makeDir(work: SandboxWork): Promise<Answer> {
  const { path, account } = await asked(work, pathRequest);
  const before = await statOf(work, path);
  if (before?.kind === "directory") throw new ForkdError("FILE_EXISTS", `directory already exists: ${path}`);
  if (before) throw new ForkdError("BAD_REQUEST", `path already exists but it is not a directory: ${path}`);
  await ensureFolder({ work, account, path });
  return { status: 200, body: { entry: await entryAt(work, path) } };
}

export async function move(work: SandboxWork): Promise<Answer> {
  const { source, destination } = await messageOf(work, moveRequest);
  const account = await accountOf(work);
  const from = pathFor(account, source);
  const to = pathFor(account, destination);
  if (!(await statOf(work, from, false))) throw new ForkdError("FILE_NOT_FOUND", `source file not found: ${from}`);
  await ensureFolder({ work, account, path: posix.dirname(to) });
  const { sandbox, services, caller } = work;
  await services.manager.files.move(sandbox.id, { from, to, overwrite: true }, caller);
  return { status: 200, body: { entry: await entryAt(work, to) } };
}

export async function remove(work: SandboxWork): Promise<Answer> {
  const { path } = await asked(work, pathRequest);
  const { sandbox, services, caller } = work;
  try {
    await services.manager.files.remove(sandbox.id, { path, recursive: true }, caller);
  } catch (error) {
    // removal of a missing file succeeds
    if (!(error instanceof ForkdError) || error.code !== "FILE_NOT_FOUND") throw error;
  }
  return { status: 200, body: {} };
}

export async function listDir(work: SandboxWork): Promise<Answer> {
  const { path, message } = await asked(work, listRequest);
  await folderAt(work, path);
  const depth = Math.max(1, message.depth);
  const files = (await everything(work, path, depth)).map((file) => ({ path: file.path, info: file }));
  return { status: 200, body: { entries: await entriesOf(work, files.toSorted(inWalkOrder)) } };
}

/** Throws FILE_NOT_FOUND, or BAD_REQUEST if the path is not a folder */
export async function folderAt(work: SandboxWork, path: string): Promise<void> {
  const info = await statOf(work, path);
  if (!info) throw new ForkdError("FILE_NOT_FOUND", `path not found: ${path}`);
  if (info.kind !== "directory") throw new ForkdError("BAD_REQUEST", `path is not a directory: ${path}`);
}

export async function entryAt(work: SandboxWork, path: string): Promise<object | undefined> {
  const info = await statOf(work, path, false);
  if (!info) throw new ForkdError("FILE_NOT_FOUND", `file not found: ${path}`);
  return (await entriesOf(work, [{ path, info }]))[0];
}

/** Request message with one path, resolved for the request's user */
export async function asked<T extends z.ZodType<{ path: string }>>(
  work: SandboxWork,
  schema: T,
): Promise<{ message: z.output<T>; account: Account; path: string }> {
  const message = await messageOf(work, schema);
  const account = await accountOf(work);
  return { message, account, path: pathFor(account, message.path) };
}

async function everything({ sandbox, services, caller }: SandboxWork, path: string, depth: number): Promise<ListedFile[]> {
  const all: ListedFile[] = [];
  let bytes = 0;
  let cursor: string | undefined;
  do {
    const page = await services.manager.files.list(sandbox.id, { path, depth, limit: PAGE, cursor }, caller);
    for (const item of page.items) bytes += item.path.length;
    all.push(...page.items);
    if (all.length > MAX_ENTRIES || bytes > MAX_PATH_BYTES)
      throw new ForkdError(
        "FILE_FAILED",
        `Cannot list ${path}: it has more than ${MAX_ENTRIES} entries, or ${MAX_PATH_BYTES} bytes of paths.`,
        {
          hint: "Ask for a smaller `depth`, or list its folders one by one.",
        },
      );
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return all;
}

/** Folders before their contents, names in order */
function inWalkOrder(a: Entry, b: Entry): number {
  const left = a.path.split("/");
  const right = b.path.split("/");
  const at = left.findIndex((part, index) => part !== right[index]);
  if (at < 0) return left.length - right.length;
  return (left[at] ?? "") < (right[at] ?? "") ? -1 : 1;
}

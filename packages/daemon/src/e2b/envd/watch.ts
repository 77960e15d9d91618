// envd: file watches, as a stream or with polling.

import { posix } from "node:path";
import * as z from "zod";
import { ForkdError } from "@forkd/runtime/errors";
import { messageOf, streamAnswer } from "./connect.ts";
import { asked, entryAt, folderAt } from "./filesystem.ts";
import type { FileEvent } from "../../api/files.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { SandboxWork } from "../work.ts";
import type { ReadChanges } from "./watchers.ts";

/** No debouncing: E2B reports every change */
const DEBOUNCE_MS = 0;

const TYPES: Partial<Record<FileEvent["type"], string>> = {
  created: "CREATE",
  modified: "WRITE",
  attributes: "CHMOD",
  removed: "REMOVE",
  moved: "CREATE",
};

const watchRequest = z.object({
  path: z.string().default(""),
  recursive: z.boolean().default(false),
  includeEntry: z.boolean().default(false),
});
const watcherRequest = z.object({ watcherId: z.string() });

export type Change = { name: string; type: string; entry?: object | undefined };

export async function watchDir(work: SandboxWork): Promise<Answer> {
  const { message, path } = await asked(work, watchRequest);
  await folderAt(work, path);
  const { sandbox, services, caller } = work;
  const leaving = new AbortController();
  const signal = AbortSignal.any([caller.signal, leaving.signal]);
  const query = { path, recursive: message.recursive, debounce_ms: DEBOUNCE_MS };
  const events = await services.manager.files.watch(sandbox.id, query, { ...caller, signal });
  return streamAnswer(messages(events, path, entriesFor(work, message)), {
    work,
    keepalive: { keepalive: {} },
    // cancel the pending wait for the next change, which would keep the watch open
    close: () => leaving.abort(new ForkdError("CANCELLED", "The client disconnected.")),
  });
}

export async function createWatcher(work: SandboxWork): Promise<Answer> {
  const { message, path } = await asked(work, watchRequest);
  await folderAt(work, path);
  const query = { path, recursive: message.recursive, debounce_ms: DEBOUNCE_MS };
  // entries are read after this request ends, when its caller is already cancelled
  const changes: ReadChanges = (events, caller) => changesOf(events, path, entriesFor({ ...work, caller }, message));
  return { status: 200, body: { watcherId: await work.services.watchers.create(work.sandbox, query, changes) } };
}

export async function getWatcherEvents(work: SandboxWork): Promise<Answer> {
  const { watcherId } = await messageOf(work, watcherRequest);
  return { status: 200, body: { events: await work.services.watchers.take(work.sandbox.id, watcherId) } };
}

export async function removeWatcher(work: SandboxWork): Promise<Answer> {
  const { watcherId } = await messageOf(work, watcherRequest);
  work.services.watchers.remove(work.sandbox.id, watcherId);
  return { status: 200, body: {} };
}

type EntryAt = ((path: string) => Promise<object | undefined>) | undefined;

function entriesFor(work: SandboxWork, { includeEntry }: z.output<typeof watchRequest>): EntryAt {
  return includeEntry ? async (path) => entryIfThere(work, path) : undefined;
}

async function* messages(events: AsyncIterable<FileEvent>, root: string, entry: EntryAt): AsyncGenerator<object> {
  yield { start: {} };
  for await (const filesystem of changesOf(events, root, entry)) yield { filesystem };
}

/** E2B reports a move as removal and creation */
export async function* changesOf(events: AsyncIterable<FileEvent>, root: string, entry?: EntryAt): AsyncGenerator<Change> {
  for await (const { type, path, from, problem } of events) {
    if (problem) throw new ForkdError("FILE_FAILED", problem.error);
    if (type === "overflow")
      throw new ForkdError("FILE_FAILED", `Cannot continue to watch ${root}: changes were lost because there were too many.`);
    const known = TYPES[type];
    if (known === undefined || path === undefined) continue;
    if (from !== undefined) yield { name: posix.relative(root, from), type: "EVENT_TYPE_RENAME" };
    const described = type === "removed" ? undefined : await entry?.(path);
    yield { name: posix.relative(root, path), type: `EVENT_TYPE_${known}`, ...(described ? { entry: described } : {}) };
  }
}

async function entryIfThere(work: SandboxWork, path: string): Promise<object | undefined> {
  try {
    return await entryAt(work, path);
  } catch (error) {
    // the file may have been removed since the event
    if (error instanceof ForkdError && error.code === "FILE_NOT_FOUND") return undefined;
    throw error;
  }
}

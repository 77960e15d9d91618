// What changes in a folder: told as it happens, or kept until it is asked for.

import { posix } from "node:path";
import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { messageOf, streamAnswer } from "./connect.ts";
import { asked, entryAt, folderAt } from "./filesystem.ts";
import type { FileEvent } from "../../api/files.ts";
import type { AnyAnswer } from "../../http/handler.ts";
import type { SandboxWork } from "../work.ts";

/** Nothing is gathered: a file that is made and written is told as both, as E2B does */
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

export async function watchDir(work: SandboxWork): Promise<AnyAnswer> {
  const { message, path } = await asked(work, watchRequest);
  await folderAt(work, path);
  const { sandbox, services, caller } = work;
  const leaving = new AbortController();
  const signal = AbortSignal.any([caller.signal, leaving.signal]);
  const query = { path, recursive: message.recursive, debounce_ms: DEBOUNCE_MS };
  const events = await services.manager.files.watch(sandbox.id, query, { ...caller, signal });
  const entry = message.includeEntry ? async (at: string) => entryIfThere(work, at) : undefined;
  return streamAnswer(messages(events, path, entry), {
    work,
    keepalive: { keepalive: {} },
    // what waits for the next change must not keep the watch
    close: () => leaving.abort(new ForkdError("CANCELLED", "The client went away.")),
  });
}

export async function createWatcher(work: SandboxWork): Promise<AnyAnswer> {
  const { message, path } = await asked(work, watchRequest);
  await folderAt(work, path);
  const query = { path, recursive: message.recursive, debounce_ms: DEBOUNCE_MS };
  const changes = (events: AsyncIterable<FileEvent>): AsyncIterable<Change> => changesOf(events, path);
  return { status: 200, body: { watcherId: await work.services.watchers.create(work.sandbox.id, query, changes) } };
}

export async function getWatcherEvents(work: SandboxWork): Promise<AnyAnswer> {
  const { watcherId } = await messageOf(work, watcherRequest);
  return { status: 200, body: { events: work.services.watchers.take(work.sandbox.id, watcherId) } };
}

export async function removeWatcher(work: SandboxWork): Promise<AnyAnswer> {
  const { watcherId } = await messageOf(work, watcherRequest);
  work.services.watchers.remove(work.sandbox.id, watcherId);
  return { status: 200, body: {} };
}

type EntryAt = ((path: string) => Promise<object | undefined>) | undefined;

async function* messages(events: AsyncIterable<FileEvent>, root: string, entry: EntryAt): AsyncGenerator<object> {
  yield { start: {} };
  for await (const filesystem of changesOf(events, root, entry)) yield { filesystem };
}

/** A move is, as for E2B, the end of one name and the beginning of another */
export async function* changesOf(events: AsyncIterable<FileEvent>, root: string, entry?: EntryAt): AsyncGenerator<Change> {
  for await (const { type, path, from, problem } of events) {
    if (problem) throw new ForkdError("FILE_FAILED", problem.error);
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
    // it may be gone again
    if (error instanceof ForkdError && error.code === "FILE_NOT_FOUND") return undefined;
    throw error;
  }
}

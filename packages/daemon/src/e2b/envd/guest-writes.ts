// File writes with the semantics of E2B's envd: any path, and new files belong to the request's user.

import { posix } from "node:path";
import { ForkdError } from "@forkd/runtime/errors";
import type { FileInfo } from "../../api/files.ts";
import type { SandboxWork } from "../work.ts";
import type { Account } from "./accounts.ts";
import { note, type Metadata } from "./metadata.ts";

const FILE_MODE = "644";
const FOLDER_MODE = "755";

type Place = { work: SandboxWork; account: Account; path: string };

/** The file at a path; null: it does not exist */
export async function statOf({ sandbox, services, caller }: SandboxWork, path: string, follow = true): Promise<FileInfo | null> {
  try {
    return await services.manager.files.stat(sandbox.id, { path, follow }, caller);
  } catch (error) {
    if (error instanceof ForkdError && error.code === "FILE_NOT_FOUND") return null;
    throw error;
  }
}

export async function writeFile(place: Place & { metadata: Metadata }, content: AsyncIterable<Uint8Array>): Promise<void> {
  const { work, account, path, metadata } = place;
  const { sandbox, services, caller } = work;
  const before = await statOf(work, path);
  if (before?.kind === "directory") throw new ForkdError("BAD_REQUEST", `path is a directory: ${path}`);
  if (!before) await ensureFolder({ work, account, path: posix.dirname(path) });
  const owner = { uid: account.uid, gid: account.gid };
  const { isOwned } = await services.manager.files.write(
    sandbox.id,
    { path, mode: before?.mode ?? FILE_MODE, inPlace: true, owner },
    content,
    caller,
  );
  if (!isOwned && (before?.uid !== account.uid || before.gid !== account.gid)) await give(place);
  // a new file has no old attributes to remove
  if (before || Object.keys(metadata).length > 0) await note(work, path, metadata);
}

/** Creates missing parent folders too */
export async function ensureFolder({ work, account, path }: Place): Promise<void> {
  const { sandbox, services, caller } = work;
  const missing: string[] = [];
  for (let folder = path; (await statOf(work, folder)) === null; folder = posix.dirname(folder)) missing.unshift(folder);
  for (const folder of missing) {
    await services.manager.files.makeDirectory(sandbox.id, { path: folder, mode: FOLDER_MODE }, caller).catch((error: unknown) => {
      // a concurrent request created the folder
      if (!(error instanceof ForkdError) || error.code !== "FILE_EXISTS") throw error;
    });
    await give({ work, account, path: folder });
  }
}

async function give({ work, account, path }: Place): Promise<void> {
  const { sandbox, services, caller } = work;
  await services.manager.files.chown(sandbox.id, { path, owner: String(account.uid), group: String(account.gid) }, caller);
}

// File entries in E2B's form.

import { posix } from "node:path";
import type { FileInfo } from "../../api/files.ts";
import type { SandboxWork } from "../work.ts";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import { outputOf } from "../guest-exec.ts";
import { statOf } from "./guest-writes.ts";
import { metadataOf, type Metadata } from "./metadata.ts";

/** Paths per readlink call: the length of a command line is limited */
const MAX_PATHS = 500;
/** Parallel stat calls for the links of a list */
const STATS_AT_ONCE = 16;

const TYPES: Partial<Record<FileInfo["kind"], string>> = {
  file: "FILE_TYPE_FILE",
  directory: "FILE_TYPE_DIRECTORY",
  symlink: "FILE_TYPE_SYMLINK",
};

/** File type letters of Go's FileMode, which E2B uses */
const LETTERS: Record<FileInfo["kind"], string> = {
  file: "-",
  directory: "d",
  symlink: "L",
  char: "Dc",
  block: "D",
  fifo: "p",
  socket: "S",
};
const SPECIAL: [bit: number, letter: string][] = [
  [0o4000, "u"],
  [0o2000, "g"],
  [0o1000, "t"],
];

export type Entry = { path: string; info: FileInfo };

/** A link gets the properties and the path of its target */
export async function entriesOf(work: SandboxWork, found: Entry[]): Promise<object[]> {
  const links = found.filter(({ info }) => info.kind === "symlink");
  const targets = await resolved(work, links);
  const noted = await metadataOf(
    work,
    found.map(({ path }) => path),
  );
  const turns = new Semaphore(STATS_AT_ONCE);
  return Promise.all(
    found.map(async ({ path, info }, at) => {
      const metadata = noted[at] ?? {};
      if (info.kind !== "symlink") return entryOf(path, info, metadata);
      const symlinkTarget = targets.get(path) ?? info.target ?? "";
      return { ...entryOf(path, (await turns.run(async () => statOf(work, path))) ?? info, metadata), symlinkTarget };
    }),
  );
}

function entryOf(path: string, info: FileInfo, metadata: Metadata): object {
  const mode = Number.parseInt(info.mode, 8);
  return {
    name: posix.basename(path),
    type: TYPES[info.kind] ?? "FILE_TYPE_UNSPECIFIED",
    path,
    size: String(info.size),
    mode: mode & 0o777,
    permissions: permissionsOf(info.kind, mode),
    owner: info.owner ?? String(info.uid),
    group: info.group ?? String(info.gid),
    modifiedTime: new Date(info.mtime_ms).toISOString(),
    ...(Object.keys(metadata).length > 0 ? { metadata } : {}),
  };
}

export function permissionsOf(kind: FileInfo["kind"], mode: number): string {
  const special = SPECIAL.filter(([bit]) => (mode & bit) !== 0).map(([, letter]) => letter);
  const prefix = (kind === "file" ? "" : LETTERS[kind]) + special.join("");
  const bits = "rwxrwxrwx"
    .split("")
    .map((letter, at) => ((mode & (0o400 >> at)) === 0 ? "-" : letter))
    .join("");
  return (prefix === "" ? LETTERS.file : prefix) + bits;
}

/** Final targets of links, broken links excluded; empty if the guest has no readlink */
async function resolved({ sandbox, services, caller }: SandboxWork, links: Entry[]): Promise<Map<string, string>> {
  const targets = new Map<string, string>();
  for (let at = 0; at < links.length; at += MAX_PATHS) {
    const paths = links.slice(at, at + MAX_PATHS).map(({ path }) => path);
    // -m also prints missing targets, so that each path has one line
    const output = await outputOf(["readlink", "-m", "-z", "--", ...paths], { id: sandbox.id, services, caller });
    const lines = (output ?? "").split("\0").slice(0, -1);
    if (lines.length === paths.length) paths.forEach((path, index) => targets.set(path, lines[index] ?? ""));
  }
  return targets;
}

// Template build steps, executed in the sandbox that becomes the snapshot.

import { posix } from "node:path";
import { ForkdError } from "@forkd/runtime/errors";
import type { ProcessExit, StartProcess } from "../../api/process.ts";
import type { Services } from "../../dispatch/services.ts";
import type { Caller } from "../../service/caller.ts";
import { statusOf } from "../envd/process-events.ts";
import type { Accounts } from "../envd/accounts.ts";
import type { Uploads } from "./uploads.ts";

/** Docker's COPY semantics: a file is copied to a name or into a folder; of a folder, the contents are copied */
const COPY_SCRIPT = `set -e
IFS=
from=$1 src=$2 dest=$3 owner=$4 mode=$5
cd "$from"
mark=$from.list
: > "$mark"
place() {
  if [ -d "$1" ]; then
    mkdir -p "$dest"
    cp -a "$1/." "$dest/"
    printf '%s\\n' "$dest" >> "$mark"
  elif [ -d "$dest" ] || [ "$dest" != "\${dest%/}" ] || [ "$many" = yes ]; then
    mkdir -p "$dest"
    cp -a "$1" "$dest/"
    printf '%s\\n' "\${dest%/}/\${1##*/}" >> "$mark"
  else
    mkdir -p "$(dirname "$dest")"
    cp -a "$1" "$dest"
    printf '%s\\n' "$dest" >> "$mark"
  fi
}
many=no
if [ -e "$src" ]; then place "$src"
else
  many=yes
  for each in $src; do place "$each"; done
fi
while IFS= read -r made; do
  chown -R "$owner" "$made"
  if [ -n "$mode" ]; then chmod -R "$mode" "$made"; fi
done < "$mark"
rm -rf "$from" "$mark"`;

/** useradd is Debian's, `adduser -D` is BusyBox's. Grants sudo only if the guest has it */
const ADD_USER = `id -u "$1" >/dev/null 2>&1 || useradd -m -s /bin/bash "$1" 2>/dev/null || adduser -D -s /bin/bash "$1" || exit
[ "$2" = yes ] && [ -d /etc/sudoers.d ] || exit 0
grep -qs "^$1 " /etc/sudoers.d/e2b || echo "$1 ALL=(ALL:ALL) NOPASSWD: ALL" >> /etc/sudoers.d/e2b
chmod 440 /etc/sudoers.d/e2b`;

export type Step = { type: string; args: string[]; filesHash?: string | undefined; force?: boolean | undefined };

/** User, folder and environment of the next step; after the last step, the defaults of the template's sandboxes */
export type Place = { user: string; workdir: string; env: Record<string, string> };

type Work = {
  sandbox: string;
  template: string;
  services: Pick<Services, "manager">;
  accounts: Accounts;
  uploads: Uploads;
  caller: Caller;
  log: (message: string) => void;
};

/** Place of the steps after this one */
export function placeAfter({ type, args }: Step, place: Place): Place {
  const [first = ""] = args;
  switch (type.toUpperCase()) {
    case "ENV":
      return { ...place, env: { ...place.env, ...envOf(args) } };
    case "WORKDIR":
      return { ...place, workdir: posix.resolve(place.workdir, first) };
    case "USER":
      return { ...place, user: first };
    default:
      return place;
  }
}

/** Whether the step changes the guest, or only the place of later steps */
export function changesGuest({ type }: Step): boolean {
  return type.toUpperCase() !== "ENV";
}

export async function doStep(step: Step, place: Place, work: Work): Promise<void> {
  const { type, args } = step;
  const [first = "", second = ""] = args;
  switch (type.toUpperCase()) {
    case "RUN":
      return runCommand(first, { ...place, user: second || place.user }, work);
    case "COPY":
    case "ADD":
      return copy(step, place, work);
    case "WORKDIR": {
      const { workdir } = placeAfter(step, place);
      return runProgram({ args: ["mkdir", "-p", "--", workdir], user: "root" }, work, `failed to create workdir '${workdir}'`);
    }
    case "USER":
      return addUser(first, work, { sudo: second === "true" });
    default:
      throw new ForkdError("UNSUPPORTED", `Cannot do the step ${type}: forkd does not support it.`);
  }
}

/** Arguments are alternating names and values */
export function envOf(args: string[]): Record<string, string> {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < args.length; at += 2) pairs.push([args[at] ?? "", args[at + 1] ?? ""]);
  return Object.fromEntries(pairs);
}

async function runCommand(command: string, { user, workdir, env }: Place, work: Work): Promise<void> {
  const start = { args: ["/bin/bash", "-l", "-c", command], user, cwd: workdir, env };
  await runProgram(start, work, `failed to run command '${command}'`);
}

/** Creates the user if it does not exist, as E2B does */
export async function addUser(name: string, work: Work, opts: { sudo: boolean }): Promise<void> {
  const args = ["/bin/sh", "-c", ADD_USER, "adduser", name, opts.sudo ? "yes" : "no"];
  await runProgram({ args, user: "root" }, work, `failed to create user '${name}'`);
}

type Start = Pick<StartProcess, "args" | "cwd" | "env"> & { user: string };

/** Rejects with the message of E2B's builder, which clients compare. The output goes to the build log */
async function runProgram(start: Start, work: Work, failed: string): Promise<void> {
  try {
    await work.accounts.find({ id: work.sandbox, metadata: {} }, start.user, work.caller);
    const exit = await outcomeOf(start, work);
    if (exit.exit_code !== 0) throw new ForkdError("WARMUP_FAILED", statusOf(exit));
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    const why = error.code === "UNAUTHORIZED" ? `command failed: unauthenticated: ${error.message}` : error.message;
    throw new ForkdError("WARMUP_FAILED", `${failed}: ${why}`, { cause: error });
  }
}

async function outcomeOf(start: Start, work: Work): Promise<ProcessExit> {
  const { manager } = work.services;
  const process = await manager.processes.startWatched(work.sandbox, { ...start, stdin: false }, work.caller);
  const rest = { stdout: "", stderr: "" };
  try {
    for await (const event of process) {
      if (event.type === "exit") {
        for (const line of [rest.stdout, rest.stderr]) if (line !== "") work.log(line);
        return event.exit;
      }
      if (event.type !== "data") continue;
      const lines = (rest[event.channel] + event.bytes.toString()).split("\n");
      rest[event.channel] = lines.pop() ?? "";
      for (const line of lines) work.log(line);
    }
  } finally {
    process.close();
  }
  throw new ForkdError("WARMUP_FAILED", "its exit code was not reported");
}

async function copy({ args, filesHash }: Step, place: Place, work: Work): Promise<void> {
  const [src = "", dest = "", user = "", mode = ""] = args;
  if (filesHash === undefined) throw new ForkdError("BAD_REQUEST", "Cannot copy: filesHash: is required.");
  const from = `/tmp/.e2b-copy-${filesHash.slice(0, 16).replaceAll(/\W/g, "")}`;
  const archive = await work.uploads.read(work.caller.project, work.template, filesHash);
  await work.services.manager.files.unpack(work.sandbox, { path: from }, archive, work.caller);
  const to = posix.resolve(place.workdir, dest) + (dest.endsWith("/") ? "/" : "");
  const owner = `${user || place.user}:`;
  const script = ["/bin/sh", "-c", COPY_SCRIPT, "copy", from, posix.normalize(src), to, owner, mode];
  await runProgram({ args: script, user: "root" }, work, `failed to copy '${src}' to '${dest}'`);
}

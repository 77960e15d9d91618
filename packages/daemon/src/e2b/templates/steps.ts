// The steps of a template, done one after the other in a sandbox.

import { posix } from "node:path";
import { ForkdError } from "../../errors.ts";
import type { StartProcess } from "../../api/process.ts";
import type { Services } from "../../http/services.ts";
import type { Caller } from "../../manager/caller.ts";
import type { Uploads } from "./uploads.ts";

/** As Docker does it: a file goes to a name or into a folder, of a folder the content goes into a folder */
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

export type Step = { type: string; args: string[]; filesHash?: string | undefined };

/** What later steps go on from, and commands in sandboxes of the template */
export type Place = { user: string; workdir: string; env: Record<string, string> };

type Work = {
  sandbox: string;
  template: string;
  services: Pick<Services, "manager">;
  uploads: Uploads;
  caller: Caller;
  log: (message: string) => void;
};

export async function doStep(step: Step, place: Place, work: Work): Promise<Place> {
  const { type, args } = step;
  const [first = "", second = ""] = args;
  switch (type.toUpperCase()) {
    case "RUN":
      await runCommand(first, { ...place, user: second || place.user }, work);
      return place;
    case "COPY":
    case "ADD":
      await copy(step, place, work);
      return place;
    case "ENV":
      return { ...place, env: { ...place.env, ...envOf(args) } };
    case "WORKDIR": {
      const workdir = posix.resolve(place.workdir, first);
      await runProgram({ args: ["mkdir", "-p", "--", workdir], user: "root" }, work);
      return { ...place, workdir };
    }
    case "USER":
      return { ...place, user: first };
    default:
      throw new ForkdError("UNSUPPORTED", `Cannot do the step ${type}: forkd has nothing for it.`);
  }
}

/** Names and values in turn */
export function envOf(args: string[]): Record<string, string> {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < args.length; at += 2) pairs.push([args[at] ?? "", args[at + 1] ?? ""]);
  return Object.fromEntries(pairs);
}

export async function runCommand(command: string, { user, workdir, env }: Place, work: Work): Promise<void> {
  await runProgram({ args: ["/bin/bash", "-l", "-c", command], user, cwd: workdir, env }, work);
}

/** Rejects when it fails; what it prints is the build's log */
async function runProgram(start: Pick<StartProcess, "args" | "user" | "cwd" | "env">, work: Work): Promise<void> {
  const { manager } = work.services;
  const process = await manager.processes.startWatched(work.sandbox, { ...start, stdin: false }, work.caller);
  const rest = { stdout: "", stderr: "" };
  try {
    for await (const event of process) {
      if (event.type === "exit") {
        for (const line of [rest.stdout, rest.stderr]) if (line !== "") work.log(line);
        const { exit_code: code, signal } = event.exit;
        if (code !== 0)
          throw new ForkdError("WARMUP_FAILED", `The command ended with ${signal ?? `exit status ${code}`}: ${start.args.at(-1)}`);
      } else if (event.type === "data") {
        const lines = (rest[event.channel] + event.bytes.toString()).split("\n");
        rest[event.channel] = lines.pop() ?? "";
        for (const line of lines) work.log(line);
      }
    }
  } finally {
    process.close();
  }
}

async function copy({ args, filesHash }: Step, place: Place, work: Work): Promise<void> {
  const [src = "", dest = "", user = "", mode = ""] = args;
  if (filesHash === undefined) throw new ForkdError("BAD_REQUEST", "Cannot copy: filesHash: is required.");
  const from = `/tmp/.e2b-copy-${filesHash.slice(0, 16).replaceAll(/\W/g, "")}`;
  const archive = await work.uploads.read(work.template, filesHash);
  await work.services.manager.files.unpack(work.sandbox, { path: from }, archive, work.caller);
  const to = posix.resolve(place.workdir, dest) + (dest.endsWith("/") ? "/" : "");
  const owner = `${user || place.user}:`;
  await runProgram({ args: ["/bin/sh", "-c", COPY_SCRIPT, "copy", from, posix.normalize(src), to, owner, mode], user: "root" }, work);
}

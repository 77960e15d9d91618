// The tar program of this machine. The archives that it unpacks are written by guests, which are not trusted.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { failure } from "../errors.ts";

import type { ChildProcessByStdio } from "node:child_process";
import type { Readable, Writable } from "node:stream";

const END_WITHIN_MS = 3000;
const MAX_REASON = 2000;
/** A file changed while it was read; the archive is complete */
const EXIT_CHANGED = 1;

type Tar = {
  child: ChildProcessByStdio<Writable, Readable, Readable>;
  /** resolves when tar succeeded, rejects with its error */
  ended: Promise<void>;
  /** kills tar and waits for its end */
  stop: () => Promise<void>;
};

/** Links stay links, holes stay holes. Owners of this machine have no meaning in the guest */
export function packArgs(folder: string): string[] {
  return [
    "--create",
    "--file=-",
    "--format=gnu",
    "--sparse",
    "--hole-detection=seek",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    `--directory=${folder}`,
    "--",
    ".",
  ];
}

/**
 * Without --absolute-names tar writes nothing outside the folder: it strips leading slashes from names and targets of hard links, refuses
 * names with "..", and creates links that point outside last, so that no file is written through them.
 */
export function unpackArgs(folder: string): string[] {
  return [
    "--extract",
    "--file=-",
    "--no-same-owner",
    // removes set-user-id, set-group-id and sticky bits
    "--no-same-permissions",
    "--delay-directory-restore",
    "--no-acls",
    "--no-selinux",
    "--no-xattrs",
    "--warning=no-timestamp",
    `--directory=${folder}`,
  ];
}

/** The archive of a folder's content, as a stream; throws in its middle when a file cannot be read */
export async function* packFolder(folder: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const tar = startTar(["tar", ...packArgs(folder)], signal, "pack");
  try {
    tar.child.stdin.end();
    for await (const chunk of tar.child.stdout as AsyncIterable<Buffer>) yield chunk;
    // before the reader takes the archive for complete
    await tar.ended;
  } finally {
    await tar.stop();
  }
}

/** Extracts into an empty folder that other users cannot enter */
export async function unpackInto(folder: string, archive: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
  // if this machine supports it, tar sees only the folder
  const { confinedWords } = await import("@forkd/runtime/host/confined");
  const path = resolve(folder);
  const { words } = await confinedWords(["tar", ...unpackArgs(path)], { write: [path], maxFileBytes: Number.MAX_SAFE_INTEGER });
  const tar = startTar(words, signal, "unpack");
  const { stdin, stdout } = tar.child;
  try {
    stdout.resume();
    for await (const chunk of archive) {
      // tar has ended: its exit code has the reason
      if (stdin.destroyed) break;
      if (!stdin.write(chunk)) await Promise.race([once(stdin, "drain").catch(() => undefined), tar.ended]);
    }
    stdin.end();
    await tar.ended;
  } finally {
    await tar.stop();
  }
}

function startTar([program = "tar", ...args]: readonly string[], signal: AbortSignal, verb: string): Tar {
  signal.throwIfAborted();
  // TAR_OPTIONS would add options
  const { TAR_OPTIONS: _options, TAPE: _tape, ...env } = process.env;
  // keeps the archive's modes; a child inherits the umask
  const mask = process.umask(0);
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"], detached: true, env: { ...env, LC_ALL: "C" } });
  process.umask(mask);
  let reason = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (reason = (reason + text).slice(-MAX_REASON)));
  child.stdin.on("error", () => undefined); // the exit code has the reason
  const ended = new Promise<void>((resolve, reject) => {
    child.once("error", (error: NodeJS.ErrnoException) =>
      reject(
        error.code === "ENOENT"
          ? failure("HOST_TOOL_MISSING", "Cannot run tar: it is not installed.", "Install GNU tar; forkd cp -r needs it.")
          : error,
      ),
    );
    child.once("close", (code, killedBy) => {
      if (signal.aborted) reject(signal.reason as Error);
      else if (code === 0 || (code === EXIT_CHANGED && verb === "pack")) resolve();
      else
        reject(
          failure("HOST_COMMAND_FAILED", `Cannot ${verb} with tar: ${reasonOf(reason, code, killedBy)}`, "Check the paths that tar names."),
        );
    });
  });
  ended.catch(() => undefined); // awaited by the caller, possibly after another failure
  const kill = (name: NodeJS.Signals): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  };
  const abort = (): void => kill("SIGTERM");
  signal.addEventListener("abort", abort, { once: true });
  const stop = async (): Promise<void> => {
    signal.removeEventListener("abort", abort);
    const over = ended.catch(() => undefined);
    if (child.exitCode === null && child.signalCode === null) kill("SIGTERM");
    await Promise.race([over, sleep(END_WITHIN_MS, undefined, { ref: false })]);
    if (child.exitCode === null && child.signalCode === null) kill("SIGKILL");
    await over;
  };
  return { child, ended, stop };
}

function reasonOf(stderr: string, code: number | null, killedBy: NodeJS.Signals | null): string {
  const lines = stderr.split("\n").filter((line) => line !== "" && !line.includes("Exiting with failure status"));
  const said = lines.at(0)?.replace(/^tar: /, "");
  return said === undefined ? `it ended with ${killedBy ?? code}.` : `${said}.`;
}

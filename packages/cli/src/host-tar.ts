// The tar program of this machine. What it unpacks comes from a guest, which may send anything.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { failure } from "./errors.ts";

import type { ChildProcessByStdio } from "node:child_process";
import type { Readable, Writable } from "node:stream";

const END_WITHIN_MS = 3000;
const MAX_REASON = 2000;
/** Something changed while it was read; the archive is whole */
const EXIT_CHANGED = 1;

type Tar = {
  child: ChildProcessByStdio<Writable, Readable, Readable>;
  /** resolves when it has ended well, rejects with why it did not */
  ended: Promise<void>;
  /** ends it, and waits for that */
  stop: () => Promise<void>;
};

/** Links stay links, holes stay holes; owners of this machine mean nothing in the guest */
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
 * Without --absolute-names nothing is written above the folder: leading slashes are taken off names and targets of hard links, a name with
 * ".." is refused, and a link that leads up or away is made only when all else is there, so that nothing goes through it.
 */
export function unpackArgs(folder: string): string[] {
  return [
    "--extract",
    "--file=-",
    "--no-same-owner",
    // neither set-user-id nor the like
    "--no-same-permissions",
    "--delay-directory-restore",
    "--no-acls",
    "--no-selinux",
    "--no-xattrs",
    "--warning=no-timestamp",
    `--directory=${folder}`,
  ];
}

/** The archive of a folder's content, as it comes; throws in its middle when something cannot be read */
export async function* packFolder(folder: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const tar = startTar(packArgs(folder), signal, "pack");
  try {
    tar.child.stdin.end();
    for await (const chunk of tar.child.stdout as AsyncIterable<Buffer>) yield chunk;
    // before whoever reads takes it for complete
    await tar.ended;
  } finally {
    await tar.stop();
  }
}

/** Extracts into a folder that nobody else can enter and in which nothing is yet */
export async function unpackInto(folder: string, archive: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
  const tar = startTar(unpackArgs(folder), signal, "unpack");
  const { stdin, stdout } = tar.child;
  try {
    stdout.resume();
    for await (const chunk of archive) {
      // a tar that has ended says itself why it took no more
      if (stdin.destroyed) break;
      if (!stdin.write(chunk)) await Promise.race([once(stdin, "drain").catch(() => undefined), tar.ended]);
    }
    stdin.end();
    await tar.ended;
  } finally {
    await tar.stop();
  }
}

function startTar(args: string[], signal: AbortSignal, verb: string): Tar {
  signal.throwIfAborted();
  // TAR_OPTIONS would add to what is asked for here
  const { TAR_OPTIONS: _options, TAPE: _tape, ...env } = process.env;
  // the modes are the archive's own; a child has the mask of its parent
  const mask = process.umask(0);
  const child = spawn("tar", args, { stdio: ["pipe", "pipe", "pipe"], detached: true, env: { ...env, LC_ALL: "C" } });
  process.umask(mask);
  let reason = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (reason = (reason + text).slice(-MAX_REASON)));
  child.stdin.on("error", () => undefined); // why it reads no more is in its exit code
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
  ended.catch(() => undefined); // whoever started it awaits it, perhaps after another failure
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

// One layer of a recipe, done in the sandbox that becomes its snapshot.

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, posix, resolve } from "node:path";
import { failure } from "../errors.ts";
import { packFolder } from "../host-tar.ts";

import type { Controller } from "forkd";
import type { CopiedFile, Step } from "./schema.ts";

const MODE_BITS = 0o777;
const MAX_OUTPUT = 1024 * 1024;

export type Place = { forkd: Controller; sandbox: string; signal: AbortSignal };

/** Why a step went wrong, and what it printed */
export class StepFailure extends Error {
  readonly output: string;

  constructor(message: string, output: string) {
    super(message);
    this.output = output;
  }
}

export async function doStep(step: Step, at: Place): Promise<void> {
  const { forkd, sandbox, signal } = at;
  if (step.kind === "file") {
    const { to, content, mode, owner } = step.file;
    await forkd.writeFile(sandbox, to, content, { mode, parents: true, signal });
    await setOwner(at, to, owner);
    return;
  }
  if (step.kind === "start") {
    const { user, workdir: cwd, env, tag } = step;
    await forkd.startProcess(sandbox, step.start, { user, cwd, env, tag, signal });
    return;
  }
  if (step.kind === "exec") {
    const { user, workdir: cwd, env, timeout_secs: timeoutSecs } = step;
    const done = await forkd.execCommand(sandbox, step.exec, { user, cwd, env, timeoutSecs, maxOutputBytes: MAX_OUTPUT, signal });
    if (done.timed_out) throw new StepFailure(`it did not end within ${timeoutSecs} s`, outputOf(done));
    if (done.exit_code !== 0) throw new StepFailure(`it ended with exit code ${done.exit_code}`, outputOf(done));
    return;
  }
  const { language, timeout_secs: timeoutSecs } = step;
  const done = await forkd.evalCode(sandbox, step.eval, { language, timeoutSecs, signal });
  if (done.exit_code !== 0)
    throw new StepFailure(done.error ?? `it ended with status ${done.exit_code}`, `${outputOf(done)}${done.traceback ?? ""}`);
}

/** A file, or what a folder holds; `from` is relative to the recipe */
export async function copyFile(file: CopiedFile, folder: string, at: Place): Promise<void> {
  const { forkd, sandbox, signal } = at;
  const path = resolve(folder, file.from);
  const info = await stat(path);
  if (info.isDirectory()) {
    if (file.mode !== undefined)
      throw failure(
        "RECIPE_INVALID",
        `Cannot copy ${file.from} with a mode: it is a folder.`,
        "Leave the mode out: a folder's files keep theirs.",
      );
    await forkd.writeTar(sandbox, file.to, packFolder(path, signal), { signal });
    await setOwner(at, file.to, file.owner, true);
    return;
  }
  const to = file.to.endsWith("/") ? posix.join(file.to, basename(path)) : file.to;
  const mode = file.mode ?? (info.mode & MODE_BITS).toString(8).padStart(3, "0");
  await forkd.writeFile(sandbox, to, createReadStream(path), { mode, parents: true, signal });
  await setOwner(at, to, file.owner);
}

export function outputOf(result: { stdout: string; stderr: string }): string {
  return `${withEnd(result.stdout)}${withEnd(result.stderr)}`;
}

async function setOwner({ forkd, sandbox, signal }: Place, path: string, owner: string | undefined, recursive = false): Promise<void> {
  if (owner === undefined) return;
  const [user, group] = owner.split(":");
  await forkd.chownFile(sandbox, path, { owner: user, group, recursive, signal });
}

function withEnd(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}

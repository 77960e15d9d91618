// Execution of recipe layers in the sandbox that becomes the snapshot.

import { posix } from "node:path";
import { ForkdError } from "@forkd/runtime/errors";
import type { RecipeFiles } from "./files.ts";
import type { Guest } from "./guest.ts";
import type { CopiedFile, Step } from "./schema.ts";

/** Reason and output of a failed step */
export class StepFailure extends Error {
  readonly output: string;

  constructor(message: string, output: string) {
    super(message);
    this.output = output;
  }
}

export async function doStep(step: Step, guest: Guest): Promise<void> {
  if (step.kind === "file") {
    const { to, content, mode, owner } = step.file;
    await guest.write(to, bytesOf(content), { mode });
    await setOwner(guest, to, owner);
    return;
  }
  if (step.kind === "start") {
    const { user, workdir: cwd, env, tag } = step;
    await guest.start(step.start, { user, cwd, env, tag });
    return;
  }
  const { timeout_secs: timeoutSecs } = step;
  if (step.kind === "exec") {
    const { user, workdir: cwd, env } = step;
    const done = await guest.exec(step.exec, { user, cwd, env, timeoutSecs });
    if (done.timed_out) throw new StepFailure(`it did not end within ${timeoutSecs} s`, outputOf(done));
    if (done.exit_code !== 0) throw new StepFailure(`it ended with exit code ${done.exit_code}`, outputOf(done));
    return;
  }
  const done = await guest.eval(step.eval, { language: step.language, timeoutSecs });
  if (done.exit_code !== 0)
    throw new StepFailure(done.error ?? `it ended with status ${done.exit_code}`, `${outputOf(done)}${done.traceback ?? ""}`);
}

/** Copies a file, or the contents of a folder; `folder` is the recipe's folder */
export async function copyFile(file: CopiedFile, files: RecipeFiles, folder: string, guest: Guest): Promise<void> {
  const path = posix.join(folder, file.from);
  if (files.find(path) === "folder") {
    if (file.mode !== undefined)
      throw new ForkdError("RECIPE_INVALID", `Cannot copy ${file.from} with a mode: it is a folder.`, {
        hint: "Remove the mode: the files of a folder keep theirs.",
      });
    await guest.unpack(file.to, files.pack(path));
    await setOwner(guest, file.to, file.owner, true);
    return;
  }
  const to = file.to.endsWith("/") ? posix.join(file.to, posix.basename(path)) : file.to;
  const mode = file.mode ?? files.mode(path).toString(8).padStart(3, "0");
  await guest.write(to, files.read(path), { mode });
  await setOwner(guest, to, file.owner);
}

export function outputOf(result: { stdout: string; stderr: string }): string {
  return `${withEnd(result.stdout)}${withEnd(result.stderr)}`;
}

async function setOwner(guest: Guest, path: string, given: string | undefined, recursive = false): Promise<void> {
  if (given === undefined) return;
  const [owner, group] = given.split(":");
  await guest.chown(path, { owner, group, recursive });
}

async function* bytesOf(content: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(content);
}

function withEnd(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}

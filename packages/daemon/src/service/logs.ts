// Logs of a sandbox: console, agent and VMM output.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { LogsQuery } from "../api/sandbox.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import { lastBytes } from "@forkd/runtime/util/tail";

const KEEP_BYTES = 256 * 1024;
const FOLLOW_MS = 250;
/** prefix of the agent's lines on the console */
const AGENT_LINE = /^(\[[^\]]*\] )?forkd-agent: /;

/**
 * The VMM buffers the end of each console and returns every byte once. The daemon appends it to a file of the sandbox,
 * so that it can be read again, also by the next daemon. Buffer and file are bounded.
 */
export class ConsoleLogs {
  readonly #reading = new WeakMap<Sandbox, Semaphore>();

  async read(sandbox: Sandbox): Promise<Buffer> {
    const turn = this.#reading.get(sandbox) ?? new Semaphore(1);
    this.#reading.set(sandbox, turn);
    return turn.run(async () => {
      const path = join(sandbox.dir, "console.log");
      const [before, fresh] = await Promise.all([lastBytes(path, KEEP_BYTES), sandbox.vm.drainConsole()]);
      if (fresh.length === 0) return before;
      const all = Buffer.concat([before, fresh]);
      const kept = all.subarray(Math.max(0, all.length - KEEP_BYTES));
      await writeFile(path, kept, { mode: 0o600 });
      return kept;
    });
  }
}

/** The log so far, or its last lines; with `follow`, also new output until the signal or the end of the sandbox */
export async function* logLines(consoles: ConsoleLogs, sandbox: Sandbox, query: LogsQuery, signal: AbortSignal): AsyncGenerator<string> {
  const read = async (): Promise<string> => {
    const bytes = query.source === "vmm" ? await lastBytes(sandbox.vm.log, KEEP_BYTES) : await consoles.read(sandbox);
    const text = bytes.toString("utf8").replaceAll("\r\n", "\n");
    return query.source === "agent"
      ? text
          .split("\n")
          .filter((line) => AGENT_LINE.test(line))
          .map((line) => `${line}\n`)
          .join("")
      : text;
  };
  let seen = await read();
  const first = query.tail === undefined ? seen : lastLines(seen, query.tail);
  if (first !== "") yield first;
  while (query.follow && !signal.aborted && sandbox.alive) {
    await sleep(FOLLOW_MS, undefined, { signal }).catch(() => undefined); // the loop condition checks the signal
    if (signal.aborted || !sandbox.alive) return;
    const now = await read();
    const fresh = freshPart(seen, now);
    seen = now;
    if (fresh !== "") yield fresh;
  }
}

function lastLines(text: string, count: number): string {
  if (count === 0) return "";
  const lines = text.split("\n");
  const ends = lines.at(-1) === "";
  return lines.slice(-(count + (ends ? 1 : 0))).join("\n");
}

/** New part of a log. A full log loses its beginning, so the end of the old text is searched in the new one */
function freshPart(seen: string, now: string): string {
  if (now.startsWith(seen)) return now.slice(seen.length);
  const anchor = seen.slice(-1024);
  const at = now.lastIndexOf(anchor);
  return at < 0 ? now : now.slice(at + anchor.length);
}

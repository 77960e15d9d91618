// Output of processes that run while they are read.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TOOLS } from "../src/tools.ts";
import type { Controller, ProcessStreamEvent } from "forkd";

type Output = { stdout: string; next_cursor: string; more: boolean; state: string };

/** A process that prints its last line and ends right after its state was read */
function hasty(): Controller {
  let printed = "";
  let state = "running";
  const forkd = {
    getProcess: async () => {
      const told = { state, exit_code: state === "ended" ? 0 : null, signal: null, timed_out: false };
      printed = "last words";
      state = "ended";
      return told;
    },
    watchProcess: async function* (_id: string, _process: string, { from }: { from: string }): AsyncGenerator<ProcessStreamEvent> {
      const offset = Number.parseInt(from, 10);
      const started = { type: "started", cursor: from, id: 1, pid: 2, tag: null, terminal: false } as const;
      yield { ...started, stdout_offset: offset, stderr_offset: 0 };
      yield { type: "stdout", cursor: "", offset, bytes: Buffer.from(printed.slice(offset)) };
    },
  };
  return forkd as unknown as Controller;
}

test("an answer with the end of a process has all of its output", async () => {
  const forkd = hasty();
  const read = async (cursor: string): Promise<Output> => {
    const tool = TOOLS.find(({ name }) => name === "read_output");
    assert.ok(tool);
    const args = tool.input.parse({ sandbox_id: "sb-1", process: 1, cursor });
    const call = { forkd, signal: new AbortController().signal, progress: () => {}, owner: { make: () => assert.fail() } };
    return (await tool.run(args as never, call)) as Output;
  };
  const first = await read("0-0");
  assert.deepEqual([first.stdout, first.state, first.more], ["last words", "running", false]);
  const second = await read(first.next_cursor);
  assert.deepEqual([second.stdout, second.state, second.more], ["", "ended", false]);
});

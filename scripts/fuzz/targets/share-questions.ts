// Fuzz target: requests of a guest to a shared host folder.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Reader, Writer } from "@forkd/runtime/util/codec";
import { T } from "@forkd/runtime/agent/wire/protocol";
import { Questions } from "@forkd/runtime/share/record";
import { startSharing } from "@forkd/runtime/share/server";
import { LARGEST_READ } from "@forkd/runtime/share/tree";
import { declared, piecesOf, type Target } from "../target.ts";
import type { AgentConnection } from "@forkd/runtime/agent/wire/connection";
import type { AgentStream } from "@forkd/runtime/agent/wire/stream";

const SECRET = "what lies beside the share";
const FILE = "content of a file ".repeat(50);
const MOST_ERRNO = 4095;
/** Upper bound of a listing: names and attributes */
const LARGEST_LIST = 64 * 1024;
/** With more requests the input is a load test */
const MOST_QUESTIONS = 40;
let source = "";

const question = (op: number, path: string, size = 4096, offset = 0n): Buffer =>
  new Writer().bytes(new Writer().u64(7n).u8(op).u64(0n).u64(offset).u32(size).str(path).done()).done();

export const target: Target = {
  sources: ["packages/runtime/src/share/"],
  tokens: [
    ...[1, 2, 3, 4].flatMap((op) => [question(op, ""), question(op, "sub"), question(op, "file"), question(op, "out")]),
    "sub/inner",
    "../secret",
    "out/secret",
    "loop/x",
    "..",
    ".",
    "/",
    "\0",
    "file/x",
    "a".repeat(256),
    Buffer.alloc(8, 0xff),
  ],
  maxBytes: 8000,
  open: async () => {
    const folder = await realpath(await mkdtemp(join(tmpdir(), "forkd-fuzz-")));
    source = join(folder, "share");
    await mkdir(join(source, "sub"), { recursive: true });
    await writeFile(join(folder, "secret"), SECRET);
    await writeFile(join(source, "file"), FILE);
    await writeFile(join(source, "sub", "inner"), "inner");
    await symlink("..", join(source, "out"));
    await symlink(join(folder, "secret"), join(source, "secret"));
    await symlink("loop", join(source, "loop"));
    return { [Symbol.asyncDispose]: async () => rm(folder, { recursive: true }) };
  },
  run: async (input) => {
    const whole = cut([input]);
    assert.deepEqual(cut(piecesOf(input)), whole, "the same bytes in pieces are other questions");
    if (whole.ids.length > MOST_QUESTIONS) return "many";
    const answers = await ask(input, whole.problem === "" ? whole.ids.length : 0);
    for (const answer of answers) check(answer);
    assert.deepEqual(
      answers.map(({ id }) => String(id)).toSorted(),
      whole.problem === "" ? whole.ids.map(String).toSorted() : [],
      "not each question has its one answer",
    );
    return `${whole.problem} ${[...new Set(answers.map(({ errno, body }) => `${errno}${body.length > 0}`))].toSorted().join()}`;
  },
};

function cut(pieces: readonly Buffer[]): { ids: bigint[]; problem: string } {
  const questions = new Questions();
  const ids: bigint[] = [];
  try {
    for (const piece of pieces) ids.push(...questions.push(piece).map(({ id }) => id));
    return { ids, problem: "" };
  } catch (error) {
    return { ids: [], problem: declared(error, ["AGENT_PROTOCOL"]) };
  }
}

type Answer = { id: bigint; errno: number; body: Buffer };

/** Sends the bytes as the guest would, and waits for `count` answers */
async function ask(input: Buffer, count: number): Promise<Answer[]> {
  const answers: Answer[] = [];
  const all = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<never>();
  let onData: ((channel: number, bytes: Buffer) => void | Promise<void>) | undefined;
  const stream: Partial<AgentStream> = {
    end: async () => ended.promise,
    started: async () => new Reader(Buffer.alloc(0)),
    write: async (_channel, bytes) => {
      answers.push(answerIn(Buffer.from(bytes)));
      if (answers.length >= count) all.resolve();
    },
  };
  const agent: Partial<AgentConnection> = {
    open: (type, _payload, given) => {
      assert.equal(type, T.MOUNT);
      onData = given;
      return stream as AgentStream;
    },
  };
  await startSharing(agent as AgentConnection, { shares: [{ source, target: "/mnt" }], mounted: [], hidden: [] });
  try {
    await onData?.(0, input);
  } catch (error) {
    declared(error, ["AGENT_PROTOCOL"]);
  }
  if (count > 0) await all.promise;
  ended.reject(new Error("the test is over"));
  await ended.promise.catch(() => undefined);
  return answers;
}

function answerIn(record: Buffer): Answer {
  const reader = new Reader(record);
  const body = new Reader(reader.bytes());
  assert.ok(reader.isAtEnd);
  return { id: body.u64(), errno: body.u32(), body: body.rest() };
}

function check({ errno, body }: Answer): void {
  assert.ok(errno <= MOST_ERRNO, `errno ${errno}`);
  if (errno > 0) assert.equal(body.length, 0);
  assert.ok(body.length <= Math.max(LARGEST_READ, LARGEST_LIST), `an answer of ${body.length} bytes`);
  assert.ok(!body.includes(SECRET), "an answer with what lies outside of the share");
}

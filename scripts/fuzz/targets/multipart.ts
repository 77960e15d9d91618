// Fuzz target: multipart forms with files, as E2B clients upload them.

import assert from "node:assert/strict";
import { boundaryOf, readParts } from "../../../packages/daemon/src/e2b/envd/multipart.ts";
import { declared, piecesOf, streamOf, type Target } from "../target.ts";

const MOST_OF_HEAD = 16 * 1024;

type Read = { name: string; filename: string | undefined; content: Buffer };

/** Input: a Content-Type, a line feed, and a body */
export const target: Target = {
  sources: ["packages/daemon/src/e2b/envd/multipart.ts"],
  tokens: [
    "\r\n",
    "\r\n\r\n",
    "--",
    "--b",
    "\r\n--b\r\n",
    "\r\n--b--",
    'Content-Disposition: form-data; name="file"; filename="a"',
    "; filename=",
    "multipart/form-data; boundary=b\n",
    'boundary="b c"',
    "%22",
    "%0d",
    '\\"',
    "\\",
    '"',
    ";",
    "\0",
    "é",
    Buffer.alloc(MOST_OF_HEAD, "h"),
  ],
  maxBytes: 40_000,
  run: async (input) => {
    const end = input.indexOf(10);
    const boundary = boundaryOf(end < 0 ? undefined : input.toString("latin1", 0, end));
    if (boundary === null) return "no form";
    const body = input.subarray(end + 1);
    const whole = await read([body], boundary);
    assert.deepEqual(await read(piecesOf(body), boundary), whole, "the same form in pieces is another one");
    const { parts, problem } = whole;
    const delimiter = Buffer.from(`\r\n--${boundary}`);
    for (const { content } of parts) assert.ok(!content.includes(delimiter), "a part continues after its boundary");
    if (problem === "") await checkAgain(parts, boundary);
    return `${problem} ${Math.min(parts.length, 3)} ${parts.some(({ filename }) => filename !== undefined)}`;
  },
};

async function read(pieces: readonly Buffer[], boundary: string): Promise<{ parts: Read[]; problem: string }> {
  const parts: Read[] = [];
  try {
    for await (const { name, filename, content } of readParts(streamOf(pieces), boundary)) {
      assert.ok(name.length + (filename?.length ?? 0) <= MOST_OF_HEAD, "a name without a bound");
      parts.push({ name, filename, content: Buffer.concat(await Array.fromAsync(content)) });
    }
    return { parts, problem: "" };
  } catch (error) {
    return { parts, problem: declared(error, ["BAD_REQUEST"]) };
  }
}

/** Writes the same contents as a well-formed form and parses it again */
async function checkAgain(parts: readonly Read[], boundary: string): Promise<void> {
  const written = parts.map(({ content }) =>
    Buffer.concat([Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="f"\r\n\r\n`), content, Buffer.from("\r\n")]),
  );
  const again = await read([...written, Buffer.from(`--${boundary}--\r\n`)], boundary);
  assert.equal(again.problem, "");
  assert.deepEqual(
    again.parts.map(({ content }) => content),
    parts.map(({ content }) => content),
  );
}

// Fuzz target: the manifest of a pack, and the file around it.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encodeHeader, endOfTar, paddingOf, rootHeader } from "@forkd/runtime/archive/tar-write";
import { openPack } from "@forkd/runtime/pack/container";
import { canonicalJson, headOf, parsePackManifest } from "@forkd/runtime/pack/manifest";
import { mutateJson } from "../mutate-json.ts";
import { declared, piecesOf, streamOf, type Target } from "../target.ts";

const CODES = ["PACK_INVALID", "PACK_VERSION", "PACK_CORRUPT", "PACK_INCOMPLETE"] as const;
const NONE = new AbortController().signal;
let folder = "";

/** Input: a manifest as JSON in the first line; further lines are the bytes after its entry in the file */
export const target: Target = {
  sources: [
    "packages/runtime/src/pack/manifest.ts",
    "packages/runtime/src/pack/container.ts",
    "packages/runtime/src/pack/signature.ts",
    "packages/runtime/src/util/byte-source.ts",
  ],
  tokens: [
    '"base"',
    '"delta"',
    '"version":2',
    "null",
    "[",
    "{",
    "}",
    "]",
    ",",
    "\n",
    "sha256:",
    '"disk":null',
    "[".repeat(8000),
    "\\ud800",
    endOfTar(),
    "ustar",
  ],
  maxBytes: 60_000,
  mutate: (input, random) => {
    const end = input.indexOf(10);
    const text = mutateJson(input.toString("utf8", 0, end < 0 ? undefined : end), random);
    return Buffer.concat([canonical(text), end < 0 ? Buffer.alloc(0) : input.subarray(end)]);
  },
  open: async () => {
    folder = await mkdtemp(join(tmpdir(), "forkd-fuzz-"));
    return { [Symbol.asyncDispose]: async () => rm(folder, { recursive: true }) };
  },
  run: async (input) => {
    const end = input.indexOf(10);
    const manifest = end < 0 ? input : input.subarray(0, end);
    const rest = end < 0 ? endOfTar() : input.subarray(end + 1);
    const parsed = parse(manifest);
    const file = Buffer.concat([entry("manifest", manifest), rest]);
    const whole = await receive([file]);
    assert.equal(await receive(piecesOf(file)), whole, "the same pack in pieces is another one");
    if (parsed !== "") assert.notEqual(whole, "whole", "a pack whose manifest is refused");
    return whole;
  },
};

function parse(bytes: Buffer): string {
  try {
    const manifest = parsePackManifest(bytes);
    assert.ok(canonicalJson(manifest).equals(bytes));
    assert.equal(headOf(manifest).id, manifest.head);
    assert.deepEqual(parsePackManifest(Buffer.from(bytes)), manifest);
    return "";
  } catch (error) {
    return declared(error, CODES);
  }
}

/** Reads the whole pack, with every blob in the manifest */
async function receive(pieces: readonly Buffer[]): Promise<string> {
  try {
    const source = await openPack(streamOf(pieces), folder);
    try {
      const { blobs } = parsePackManifest(source.manifestBytes);
      for (const { digest, size } of blobs) {
        const path = await source.blob(digest, size, NONE);
        await rm(path);
      }
      await source.done?.();
      return "whole";
    } finally {
      await source.close();
    }
  } catch (error) {
    await rm(folder, { recursive: true });
    folder = await mkdtemp(join(tmpdir(), "forkd-fuzz-"));
    return declared(error, CODES);
  }
}

function entry(part: string, data: Buffer): Buffer {
  const hex = createHash("sha256").update(data).digest("hex");
  const header = encodeHeader(rootHeader({ path: `${part}/sha256/${hex}`, type: "file", mode: 0o644, size: data.length }));
  return Buffer.concat([header, data, paddingOf(data.length)]);
}

/** Canonical JSON, if the text is JSON that can be serialized again */
function canonical(text: string): Buffer {
  try {
    return canonicalJson(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return Buffer.from(text);
    throw error;
  }
}

// Fuzz target: untrusted tar archives, the filter for images, and the output for sqfstar.

import assert from "node:assert/strict";
import { applyEntry, newTree, walkTree } from "@forkd/runtime/image/layer-tree";
import { readTar, type TarHeader } from "@forkd/runtime/archive/tar-read";
import { encodeHeader, endOfTar, paddingOf, rootHeader } from "@forkd/runtime/archive/tar-write";
import { declared, piecesOf, streamOf, type Target } from "../target.ts";
import type { Random } from "../../../tests/helpers/random.ts";

const BLOCK = 512;
const CHECKSUM = 148;
const LIMITS = { label: "x", whiteouts: true, maxEntries: 1000, maxTreeBytes: 4 * 1024 * 1024 };

type Read = { header: TarHeader; content: Buffer };

export const target: Target = {
  sources: [
    "packages/runtime/src/archive/tar-read.ts",
    "packages/runtime/src/archive/tar-write.ts",
    "packages/runtime/src/image/layer-tree.ts",
    "packages/runtime/src/archive/tar-filter.ts",
  ],
  tokens: [
    "ustar\0",
    "../",
    "/",
    "./",
    ".wh.",
    ".wh..wh..opq",
    "11 path=a/b\n",
    "12 uid=70000\n",
    "30 SCHILY.xattr.user.a=0123456\n",
    "13 size=1024\n",
    "20 mtime=1700000000.5\n",
    "14 linkpath=ab\n",
    "25 GNU.sparse.major=1000000\n",
    "x",
    "g",
    "L",
    "K",
    "0",
    "1",
    "2",
    "3",
    "5",
    "7",
    Buffer.from([0x80, 0, 0, 0, 0, 0, 0, 1]),
    Buffer.from([0x80, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]),
    Buffer.alloc(BLOCK),
    encodeHeader(rootHeader({ path: "a", type: "dir", mode: 0o755 })),
    encodeHeader(rootHeader({ path: "a/b", type: "symlink", mode: 0o777, linkname: "../c" })),
  ],
  maxBytes: 16_384,
  mutate: (input, random) => withSums(input, random),
  run: async (input) => {
    const whole = await read([input]);
    const pieces = await read(piecesOf(input));
    assert.deepEqual(pieces, whole, "the same archive in pieces is another one");
    const tree = newTree();
    let outcome = whole.problem;
    const kept: Read[] = [];
    try {
      for (const [index, one] of whole.entries.entries()) applyEntry(tree, one.header, Math.floor(index / 4), index, LIMITS);
    } catch (error) {
      outcome += declared(error, ["IMAGE_INVALID", "IMAGE_TOO_LARGE"]);
    }
    for (const { path, node } of walkTree(tree)) {
      assert.ok(
        !path.split("/").includes("..") && !path.startsWith("/") && !path.includes("\0"),
        `the path ${JSON.stringify(path)} in an image`,
      );
      const { header, index } = node.inode;
      if (path !== "") kept.push({ header: { ...header, path }, content: whole.entries[index]?.content ?? Buffer.alloc(0) });
    }
    await checkWritten(kept);
    return `${outcome} ${new Set(kept.map(({ header }) => header.type)).size}`;
  },
};

async function read(pieces: readonly Buffer[]): Promise<{ entries: Read[]; problem: string }> {
  const entries: Read[] = [];
  try {
    for await (const { header, body } of readTar(streamOf(pieces), "x")) {
      const content = Buffer.concat(await Array.fromAsync(body()));
      assert.equal(content.length, header.size);
      entries.push({ header, content });
    }
    return { entries, problem: "" };
  } catch (error) {
    return { entries, problem: declared(error, ["IMAGE_INVALID"]) };
  }
}

/** Checks that the output for sqfstar parses to the same entries */
async function checkWritten(kept: readonly Read[]): Promise<void> {
  const written = kept.map(({ header, content }) =>
    Buffer.concat([encodeHeader({ ...header, size: content.length }), content, paddingOf(content.length)]),
  );
  const { entries, problem } = await read([...written, endOfTar()]);
  assert.equal(problem, "", "what is written cannot be read");
  const shown = ({ header, content }: Read): unknown => ({
    ...header,
    path: header.path.replace(/\/$/, ""),
    size: content.length,
    content: content.toString("latin1"),
    xattrs: [...header.xattrs].map(([name, value]) => `${name}=${value.toString("latin1")}`),
  });
  assert.deepEqual(entries.map(shown), kept.map(shown), "what is written is read as something else");
}

/** Changes header fields and corrects the checksums: otherwise parsing would stop there */
function withSums(input: Buffer, random: Random): Buffer {
  const bytes = Buffer.concat([input, Buffer.alloc((BLOCK - (input.length % BLOCK)) % BLOCK)]);
  const fields: [at: number, length: number][] = [
    ...([
      [0, 100],
      [100, 8],
      [108, 8],
      [116, 8],
      [124, 12],
      [136, 12],
      [156, 1],
      [157, 100],
      [257, 6],
      [329, 8],
      [337, 8],
      [345, 155],
    ] as [number, number][]),
  ];
  const values = [
    "0000000\0",
    "00000001000\0",
    "7777777\0",
    "77777777777\0",
    "a/b\0",
    "../x\0",
    "\x80\0\0\0\0\0\0\x01",
    "\x80\0\x01\0\0\0\0\0",
    "5",
    "x",
    "1",
    "2",
  ];
  for (let at = 0; at + BLOCK <= bytes.length; at += BLOCK) {
    const isHeader = bytes.toString("latin1", at + 257, at + 262) === "ustar" || bytes.toString("latin1", at + 154, at + 156) === "\0 ";
    if (!isHeader) continue;
    if (random.below(3) === 0) {
      const [field, length] = random.pick(fields) ?? [0, 100];
      if (random.below(2) === 0) bytes.write((random.pick(values) ?? "").slice(0, length), at + field, "latin1");
      else bytes[at + field + random.below(length)] = random.below(256);
    }
    bytes.fill(0x20, at + CHECKSUM, at + CHECKSUM + 8);
    const sum = bytes.subarray(at, at + BLOCK).reduce((total, byte) => total + byte, 0);
    bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, at + CHECKSUM, "latin1");
  }
  return bytes;
}

// Fuzz target: DNS queries of a guest over UDP and TCP, with arbitrary answers of the host's servers.

import assert from "node:assert/strict";
import { answerQuery } from "@forkd/runtime/egress/answers";
import { serveDns } from "@forkd/runtime/egress/dns-stream";
import { readQuestion, TCP_LIMIT, TYPE, UDP_LIMIT } from "@forkd/runtime/egress/dns";
import { Names, type Upstream } from "@forkd/runtime/egress/names";
import { Rules } from "@forkd/runtime/egress/policy";
import { Reader, CodecError } from "@forkd/runtime/util/codec";
import { piecesOf, type Target } from "../target.ts";
import type { Incoming } from "@forkd/runtime/agent/wire/connection";
import type { Network } from "@forkd/runtime/egress/network";
import type { AgentStream } from "@forkd/runtime/agent/wire/stream";

const HEADER = 12;
const RULES = new Rules({ mode: "allow", allow: ["example.org", "*.example.org:443", "127.0.0.1"] });
const NAME = Buffer.from("\x07example\x03org\0", "latin1");

/** Input: a length, the answers of the host's servers in that many bytes, and the guest's bytes */
export const target: Target = {
  sources: [
    "packages/runtime/src/egress/dns.ts",
    "packages/runtime/src/egress/dns-stream.ts",
    "packages/runtime/src/egress/answers.ts",
    "packages/runtime/src/egress/names.ts",
  ],
  tokens: [
    NAME,
    Buffer.from("\x01a\x07example\x03org\0", "latin1"),
    Buffer.from("\x04host\x05forkd\x08internal\0", "latin1"),
    ...Object.values(TYPE).map((type) => Buffer.from([0, type, 0, 1])),
    Buffer.from([0xc0, 0x0c]),
    Buffer.from([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
    Buffer.alloc(64, "a"),
    "\\.",
    "a.b.",
  ],
  maxBytes: 5000,
  run: async (input) => {
    const size = Math.min(input.length, input.length < 2 ? 2 : input.readUInt16LE(0) + 2);
    const script = input.subarray(2, size);
    const sent = input.subarray(size);
    const reply = await answerQuery(sent, { rules: RULES, network: networkOf(script), owner: "a", limit: UDP_LIMIT, mayAsk: () => true });
    assert.equal(reply === undefined, readQuestion(sent) === undefined);
    const shown = reply ? checkReply(sent, reply.response, UDP_LIMIT) : "none";
    const framed = Buffer.concat([Buffer.of(sent.length >> 8, sent.length & 0xff), sent, sent]);
    const whole = await overTcp([framed], script);
    assert.deepEqual(await overTcp(piecesOf(framed), script), whole, "the same bytes in pieces get another reply");
    return `${shown} ${whole.cancelled} ${whole.replies.length}`;
  },
};

function networkOf(script: Buffer): Network {
  const names = new Names({ upstream: upstreamOf(script), isRoutable: async () => true });
  return { names, isOwn: () => false } as unknown as Network;
}

/** A DNS server that answers from the script; after its end there are no answers */
function upstreamOf(script: Buffer): Upstream {
  const answers = <V>(read: (reader: Reader) => V): V[] => {
    const reader = new Reader(script);
    const all: V[] = [];
    try {
      const kind = reader.u8();
      if (kind < 3) throw Object.assign(new Error("no answer"), { code: ["ENOTFOUND", "ENODATA", "ETIMEOUT"][kind] });
      while (!reader.isAtEnd) all.push(read(reader));
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
    }
    return all;
  };
  const text = (reader: Reader): string => {
    const bytes: number[] = [];
    for (let left = reader.u8(); left > 0; left--) bytes.push(reader.u8());
    return Buffer.from(bytes).toString("latin1");
  };
  const v4 = (reader: Reader): string => `${reader.u8()}.${reader.u8()}.${reader.u8()}.${reader.u8()}`;
  const v6 = (reader: Reader): string => Array.from({ length: 8 }, () => reader.u16().toString(16)).join(":");
  const upstream = {
    resolve4: async () => answers((reader) => ({ ttl: reader.u32(), address: v4(reader) })),
    resolve6: async () => answers((reader) => ({ ttl: reader.u32(), address: v6(reader) })),
    resolveMx: async () => answers((reader) => ({ priority: reader.u16(), exchange: text(reader) })),
    resolveSrv: async () => answers((reader) => ({ priority: reader.u16(), weight: reader.u16(), port: reader.u16(), name: text(reader) })),
    resolveTxt: async () => answers((reader) => Array.from({ length: reader.u8() }, () => text(reader))),
  };
  return upstream as unknown as Upstream;
}

async function overTcp(pieces: readonly Buffer[], script: Buffer): Promise<{ replies: Buffer[]; cancelled: boolean }> {
  const replies: Buffer[] = [];
  let cancelled = false;
  let onData: ((channel: number, bytes: Buffer) => void | Promise<void>) | undefined;
  const ended = Promise.withResolvers<never>();
  const stream: Partial<AgentStream> = {
    write: async (_channel, bytes) => void replies.push(Buffer.from(bytes)),
    cancel: () => {
      cancelled = true;
    },
    eof: () => undefined,
    opened: () => undefined,
    end: async () => ended.promise,
  };
  const open: Incoming["open"] = (opts) => {
    onData = opts.onData;
    return stream as AgentStream;
  };
  const over = Promise.withResolvers<void>();
  const network = networkOf(script);
  const asked: Buffer[] = [];
  const answer = async (message: Buffer): Promise<Buffer | undefined> => {
    asked.push(Buffer.from(message));
    return (await answerQuery(message, { rules: RULES, network, owner: "a", limit: TCP_LIMIT, mayAsk: () => true }))?.response;
  };
  serveDns({ open } as Incoming, answer, over.resolve);
  for (const piece of pieces) {
    await onData?.(0, piece);
    if (cancelled) break;
  }
  ended.reject(new Error("the test is over"));
  await over.promise;
  for (const [at, reply] of replies.entries()) {
    assert.equal(reply.readUInt16BE(0), reply.length - 2);
    checkReply(asked[at] ?? Buffer.alloc(0), reply.subarray(2), TCP_LIMIT);
  }
  return { replies, cancelled };
}

/** Parses a reply as a program in the guest would, and throws if it is malformed */
function checkReply(sent: Buffer, reply: Buffer, limit: number): string {
  assert.ok(reply.length >= HEADER && reply.length <= limit, `a reply of ${reply.length} bytes`);
  assert.equal(reply.readUInt16BE(0), sent.readUInt16BE(0), "the id of a reply");
  const flags = reply.readUInt16BE(2);
  assert.equal(flags & 0xfc70, 0x8000, "the flags of a reply");
  const [questions, answers, others] = [reply.readUInt16BE(4), reply.readUInt16BE(6), reply.readUInt32BE(8)];
  assert.ok(questions <= 1 && others === 0);
  let at = HEADER;
  if (questions === 1) {
    at = nameEnd(reply, at) + 4;
    assert.ok(reply.subarray(HEADER, at).equals(sent.subarray(HEADER, at)), "a reply to another question");
  }
  const types: number[] = [];
  for (let left = answers; left > 0; left--) {
    assert.equal(reply.readUInt16BE(at), 0xc00c);
    const type = reply.readUInt16BE(at + 2);
    const length = reply.readUInt16BE(at + 10);
    checkData(type, reply.subarray(0, at + 12 + length), at + 12);
    types.push(type);
    at += 12 + length;
  }
  assert.equal(at, reply.length, "a reply that ends elsewhere than its records");
  return `${flags & 0x20f} ${[...new Set(types)].join()} ${types.length > 3}`;
}

function checkData(type: number, reply: Buffer, at: number): void {
  const length = reply.length - at;
  if (type === TYPE.A) return assert.equal(length, 4);
  if (type === TYPE.AAAA) return assert.equal(length, 16);
  if (type === TYPE.MX) return assert.equal(nameEnd(reply, at + 2), reply.length);
  if (type === TYPE.SRV) return assert.equal(nameEnd(reply, at + 6), reply.length);
  assert.equal(type, TYPE.TXT);
  let text = at;
  while (text < reply.length) text += 1 + (reply[text] ?? 0);
  assert.equal(text, reply.length);
}

function nameEnd(message: Buffer, from: number): number {
  let at = from;
  for (;;) {
    const length = message[at];
    assert.ok(length !== undefined && length <= 63, "a label in a reply");
    at += 1 + length;
    assert.ok(at - from <= 255, "a name of more than 255 bytes in a reply");
    if (length === 0) return at;
  }
}

// DNS messages: parses one question, writes one answer.

import { parseAddress, type Address } from "./addresses.ts";
import { normalName } from "./policy.ts";

export const TYPE = { A: 1, MX: 15, TXT: 16, AAAA: 28, SRV: 33 } as const;
export const RCODE = { ok: 0, malformed: 1, failed: 2, noSuchName: 3, notImplemented: 4 } as const;

const HEADER = 12;
const CLASS_IN = 1;
const MAX_NAME = 255;
const MAX_LABEL = 63;
/** maximum over UDP for clients without EDNS, which forkd does not offer */
export const UDP_LIMIT = 512;
export const TCP_LIMIT = 65_535;

export type Question = {
  id: number;
  recursion: boolean;
  /** the question as received: the answer repeats it byte for byte */
  bytes: Buffer;
  /** undefined: not a valid host name */
  name: string | undefined;
  type: number;
};

/** A query that can only be answered with an error code */
export type Asked = { question: Question; problem: null } | { question: Omit<Question, "name" | "type">; problem: number };

export type Answer = { type: number; ttl: number; data: Buffer };

/** undefined: cannot be answered */
export function readQuestion(message: Buffer): Asked | undefined {
  if (message.length < HEADER) return undefined;
  const flags = message.readUInt16BE(2);
  if (flags & 0x8000) return undefined; // it is an answer
  const header = { id: message.readUInt16BE(0), recursion: (flags & 0x0100) !== 0, bytes: Buffer.alloc(0) };
  if ((flags >> 11) & 0xf) return { question: header, problem: RCODE.notImplemented };
  const labels = readLabels(message);
  if (message.readUInt16BE(4) !== 1 || !labels || message.length < labels.end + 4) return { question: header, problem: RCODE.malformed };
  const bytes = message.subarray(HEADER, labels.end + 4);
  const type = message.readUInt16BE(labels.end);
  if (message.readUInt16BE(labels.end + 2) !== CLASS_IN) return { question: { ...header, bytes }, problem: RCODE.notImplemented };
  return { question: { ...header, bytes, name: normalName(labels.name), type }, problem: null };
}

/** On overflow addresses are left out; for other types the truncation bit makes the client retry over TCP */
export function writeAnswer(question: Omit<Question, "name" | "type">, rcode: number, answers: readonly Answer[], limit: number): Buffer {
  const records: Buffer[] = [];
  let size = HEADER + question.bytes.length;
  let isCut = false;
  for (const answer of answers) {
    size += 12 + answer.data.length;
    if (size > limit) {
      isCut = answer.type !== TYPE.A && answer.type !== TYPE.AAAA;
      break;
    }
    records.push(writeRecord(answer));
  }
  const header = Buffer.alloc(HEADER);
  header.writeUInt16BE(question.id, 0);
  header.writeUInt16BE(0x8080 | (question.recursion ? 0x0100 : 0) | (isCut ? 0x0200 : 0) | rcode, 2);
  header.writeUInt16BE(question.bytes.length > 0 ? 1 : 0, 4);
  header.writeUInt16BE(records.length, 6);
  return Buffer.concat([header, question.bytes, ...records]);
}

export function addressData({ family, value }: Address): Buffer {
  return Buffer.from(value.toString(16).padStart(family === 4 ? 8 : 32, "0"), "hex");
}

export function addressAnswer(text: string, ttl: number): Answer | undefined {
  const address = parseAddress(text);
  return address && { type: address.family === 4 ? TYPE.A : TYPE.AAAA, ttl, data: addressData(address) };
}

/** undefined: its name cannot be encoded */
export function mxAnswer(mx: { priority: number; exchange: string }, ttl: number): Answer | undefined {
  const name = writeName(mx.exchange);
  return name && { type: TYPE.MX, ttl, data: Buffer.concat([u16(mx.priority), name]) };
}

/** undefined: its name cannot be encoded */
export function srvAnswer(srv: { priority: number; weight: number; port: number; name: string }, ttl: number): Answer | undefined {
  const name = writeName(srv.name);
  return name && { type: TYPE.SRV, ttl, data: Buffer.concat([u16(srv.priority), u16(srv.weight), u16(srv.port), name]) };
}

export function txtAnswer(texts: readonly string[], ttl: number): Answer {
  const parts = texts.map((text) => Buffer.from(text, "latin1").subarray(0, 255));
  return { type: TYPE.TXT, ttl, data: Buffer.concat(parts.flatMap((part) => [Buffer.of(part.length), part])) };
}

function readLabels(message: Buffer): { name: string; end: number } | undefined {
  const labels: string[] = [];
  let at = HEADER;
  for (;;) {
    const length = message[at];
    // compression pointers are invalid in a question
    if (length === undefined || length > MAX_LABEL || at + 1 + length > message.length || at - HEADER + 1 + length > MAX_NAME)
      return undefined;
    at++;
    if (length === 0) return { name: labels.join("."), end: at };
    const label = message.toString("latin1", at, at + length);
    // A dot inside a label would become a separator, so only plain characters are accepted.
    labels.push(/^[\w-]+$/.test(label) ? label : "?");
    at += length;
  }
}

function writeRecord({ type, ttl, data }: Answer): Buffer {
  const head = Buffer.alloc(12);
  head.writeUInt16BE(0xc000 | HEADER, 0); // pointer to the name of the question
  head.writeUInt16BE(type, 2);
  head.writeUInt16BE(CLASS_IN, 4);
  head.writeUInt32BE(ttl, 6);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}

/** undefined: too long, or with bytes that the resolver escapes by a backslash; truncated or split it would be another name */
function writeName(name: string): Buffer | undefined {
  const labels = name.split(".").filter((label) => label !== "");
  if (!labels.every((label) => label.length <= MAX_LABEL && /^[\x21-\x5b\x5d-\x7e]+$/.test(label))) return undefined;
  const written = Buffer.from([...labels.map((label) => `${String.fromCharCode(label.length)}${label}`), "\0"].join(""), "latin1");
  return written.length <= MAX_NAME ? written : undefined;
}

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value & 0xffff);
  return bytes;
}

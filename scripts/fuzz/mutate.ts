// Random mutations of inputs: bits, numbers, lengths, and parts of this and other inputs.

import type { Random } from "../../tests/helpers/random.ts";

const BYTES = [0, 1, 0x20, 0x7f, 0x80, 0xc0, 0xfe, 0xff];
/** Boundary values of 32 bits; a 64-bit value is two of them */
const NUMBERS = [0, 1, 2, 3, 4, 16, 255, 256, 512, 4095, 4096, 4097, 32767, 65535, 65536, 65537, 0x7fffffff, 0x80000000, 0xffffffff];
const MOST_CHANGES = 6;

export type Material = { random: Random; tokens: readonly (string | Buffer)[]; others: readonly Buffer[]; maxBytes: number };

/** Returns a mutated copy */
export function mutate(input: Buffer, material: Material): Buffer {
  const { random, maxBytes } = material;
  let bytes: Buffer = Buffer.from(input);
  for (let left = 1 + random.below(MOST_CHANGES); left > 0; left--) {
    const change = random.pick(CHANGES) ?? flipBit;
    bytes = change(bytes, material).subarray(0, maxBytes);
  }
  return bytes;
}

type Change = (bytes: Buffer, material: Material) => Buffer;

const flipBit: Change = (bytes, { random }) => {
  if (bytes.length === 0) return bytes;
  const at = random.below(bytes.length);
  bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8));
  return bytes;
};

const setByte: Change = (bytes, { random }) => {
  if (bytes.length > 0) bytes[random.below(bytes.length)] = random.below(2) === 0 ? random.below(256) : (random.pick(BYTES) ?? 0);
  return bytes;
};

/** Writes a boundary value, or a number close to the input's length */
const setNumber: Change = (bytes, { random }) => {
  const width = random.pick([2, 4, 8]) ?? 4;
  if (bytes.length < width) return bytes;
  const at = random.below(bytes.length - width + 1);
  const rest = bytes.length - at - width;
  const value = random.pick([random.pick(NUMBERS) ?? 0, rest, rest + 1, bytes.length, random.below(64)]) ?? 0;
  return writeNumber(bytes, at, width, value, random.below(2) === 0);
};

/** Adds a small number to an existing one */
const addToNumber: Change = (bytes, { random }) => {
  const width = random.pick([1, 2, 4]) ?? 4;
  if (bytes.length < width) return bytes;
  const at = random.below(bytes.length - width + 1);
  const little = random.below(2) === 0;
  const value = little ? bytes.readUIntLE(at, width) : bytes.readUIntBE(at, width);
  return writeNumber(bytes, at, width, value + random.below(33) - 16, little);
};

const setToken: Change = (bytes, { random, tokens }) => {
  const token = Buffer.from(random.pick(tokens) ?? "");
  token.copy(bytes, random.below(bytes.length + 1));
  return bytes;
};

const insertToken: Change = (bytes, { random, tokens }) =>
  insert(bytes, random.below(bytes.length + 1), Buffer.from(random.pick(tokens) ?? ""));

const insertBytes: Change = (bytes, { random }) => {
  const count = 1 + random.below(random.pick([2, 16, 600]) ?? 2);
  return insert(bytes, random.below(bytes.length + 1), Buffer.alloc(count, random.below(256)));
};

const remove: Change = (bytes, { random }) => {
  const { at, size } = part(bytes, random);
  return Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + size)]);
};

const repeat: Change = (bytes, { random }) => {
  const { at, size } = part(bytes, random);
  const times = random.below(8) === 0 ? 1 + random.below(64) : 1;
  return insert(bytes, at, Buffer.concat(Array.from({ length: times }, () => bytes.subarray(at, at + size))));
};

/** Copies a part to another place of the input */
const move: Change = (bytes, { random }) => {
  const { at, size } = part(bytes, random);
  bytes.copy(bytes, random.below(bytes.length + 1), at, at + size);
  return bytes;
};

const cut: Change = (bytes, { random }) => bytes.subarray(0, random.below(bytes.length + 1));

/** Joins the beginning of this input and the end of another */
const splice: Change = (bytes, { random, others }) => {
  const other = random.pick(others) ?? bytes;
  return Buffer.concat([bytes.subarray(0, random.below(bytes.length + 1)), other.subarray(random.below(other.length + 1))]);
};

/** Inserts a part of another input */
const graft: Change = (bytes, { random, others }) => {
  const other = random.pick(others) ?? bytes;
  const { at, size } = part(other, random);
  return insert(bytes, random.below(bytes.length + 1), other.subarray(at, at + size));
};

const CHANGES: readonly Change[] = [
  flipBit,
  setByte,
  setNumber,
  addToNumber,
  setToken,
  insertToken,
  insertBytes,
  remove,
  repeat,
  move,
  cut,
  splice,
  graft,
  flipBit,
  setNumber,
  setByte,
];

function part(bytes: Buffer, random: Random): { at: number; size: number } {
  const at = random.below(bytes.length + 1);
  const most = random.pick([4, 32, 512, bytes.length]) ?? 4;
  return { at, size: Math.min(bytes.length - at, 1 + random.below(most + 1)) };
}

function insert(bytes: Buffer, at: number, piece: Buffer): Buffer {
  return Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at)]);
}

function writeNumber(bytes: Buffer, at: number, width: number, value: number, little: boolean): Buffer {
  let number = BigInt.asUintN(width * 8, BigInt(value));
  for (let index = 0; index < width; index++, number >>= 8n) bytes[little ? at + index : at + width - 1 - index] = Number(number & 0xffn);
  return bytes;
}

// The codec against the golden frames, and against garbage.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { CodecError, Reader, Writer } from "../../src/util/codec.ts";
import { attachedRecord, attachRecord, encodeFrame, FrameDecoder, HEADER_BYTES, MAX_PAYLOAD, T } from "../../src/agent/wire/protocol.ts";

type Field = { name: string; as: string; value: unknown };
type Golden = { file: string; type: keyof typeof T; stream: number; fields: Field[] };
type GoldenRecord = { file: string; record: "attach" | "attached"; key?: string; nonce: string };

const folder = new URL("../../../../spec/frames/", import.meta.url);
const load = (file: string): Buffer => readFileSync(new URL(file, folder));
const index = JSON.parse(load("index.json").toString()) as { records: GoldenRecord[]; frames: Golden[] };

type Region = [name: string, address: string, length: number, fill: number];
type Listener = [address: string, port: number, pid: number, name: string];
type ListedProcess = [
  ...[id: string, pid: number, tag: string, argv: string[], running: number, code: number, signal: number],
  ...[timedOut: number, terminal: number, stdin: number, started: string, cwd: string, user: string, stdout: string, stderr: string],
];

function write(out: Writer, { as, value }: Field): void {
  switch (as) {
    case "u8":
      return void out.u8(value as number);
    case "u16":
      return void out.u16(value as number);
    case "u32":
      return void out.u32(value as number);
    case "i32":
      return void out.i32(value as number);
    case "u64":
      return void out.u64(BigInt(value as string));
    case "i64":
      return void out.i64(BigInt(value as string));
    case "str":
      return void out.str(value as string);
    case "bytes":
      return void out.bytes(Buffer.from(value as string, "hex"));
    case "list<str>":
      return void out.list(value as string[], (w, item) => void w.str(item));
    case "list<bytes>":
      return void out.list(value as string[], (w, item) => void w.bytes(Buffer.from(item, "hex")));
    case "map":
      return void out.map(value as Record<string, string>);
    case "failures":
      return void out.list(value as [string, string][], (w, [step, why]) => void w.str(step).str(why));
    case "processes":
      return void out.list(value as ListedProcess[], (w, [id, pid, tag, argv, ...rest]) => {
        const [running, code, signal, timedOut, terminal, stdin, started, cwd, user, stdout, stderr] = rest;
        w.u64(BigInt(id)).u32(pid).str(tag);
        w.list(argv, (inner, argument) => void inner.str(argument));
        w.u8(running).i32(code).u32(signal).u8(timedOut).u8(terminal).u8(stdin);
        w.i64(BigInt(started)).str(cwd).str(user).u64(BigInt(stdout)).u64(BigInt(stderr));
      });
    case "regions":
      return void out.list(
        value as Region[],
        (w, [name, address, length, fill]) => void w.str(name).u64(BigInt(address)).u32(length).u8(fill),
      );
    case "listeners":
      return void out.list(value as Listener[], (w, [address, port, pid, name]) => void w.str(address).u32(port).u32(pid).str(name));
    case "rest":
      for (const byte of Buffer.from(value as string, "hex")) out.u8(byte);
      return;
    default:
      assert.fail(`unknown field kind ${as}`);
  }
}

function read(reader: Reader, as: string): unknown {
  switch (as) {
    case "u8":
      return reader.u8();
    case "u16":
      return reader.u16();
    case "u32":
      return reader.u32();
    case "i32":
      return reader.i32();
    case "u64":
      return String(reader.u64());
    case "i64":
      return String(reader.i64());
    case "str":
      return reader.str();
    case "bytes":
      return reader.bytes().toString("hex");
    case "list<str>":
      return reader.list((r) => r.str());
    case "list<bytes>":
      return reader.list((r) => r.bytes().toString("hex"));
    case "map":
      return Object.fromEntries(reader.list((r) => [r.str(), r.str()]));
    case "failures":
      return reader.list((r) => [r.str(), r.str()]);
    case "processes":
      return reader.list((r) => [
        String(r.u64()),
        r.u32(),
        r.str(),
        r.list((inner) => inner.str()),
        r.u8(),
        r.i32(),
        r.u32(),
        r.u8(),
        r.u8(),
        r.u8(),
        String(r.i64()),
        r.str(),
        r.str(),
        String(r.u64()),
        String(r.u64()),
      ]);
    case "regions":
      return reader.list((r) => [r.str(), String(r.u64()), r.u32(), r.u8()]);
    case "listeners":
      return reader.list((r) => [r.str(), r.u32(), r.u32(), r.str()]);
    case "rest":
      return reader.rest().toString("hex");
    default:
      return assert.fail(`unknown field kind ${as}`);
  }
}

/** mulberry32: a fixed seed gives the same garbage on every run */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const everything = Buffer.concat(index.frames.map(({ file }) => load(file)));

test("golden frames cover every type and every file", () => {
  assert.deepEqual(new Set(index.frames.map(({ type }) => type)), new Set(Object.keys(T)));
  const named = [...index.frames, ...index.records].map(({ file }) => file).concat("index.json");
  assert.deepEqual(readdirSync(folder).toSorted(), named.toSorted());
});

for (const { file, type, stream, fields } of index.frames) {
  test(`golden frame ${file}`, () => {
    const golden = load(file);
    const writer = new Writer();
    for (const field of fields) write(writer, field);
    assert.deepEqual(encodeFrame(T[type], stream, writer.done()), golden);

    const [frame, ...more] = new FrameDecoder().push(golden);
    assert.ok(frame);
    assert.equal(more.length, 0);
    assert.deepEqual([frame.type, frame.stream], [T[type], stream]);
    const reader = new Reader(frame.payload);
    for (const field of fields) assert.deepEqual(read(reader, field.as), field.value, field.name);
    assert.equal(reader.rest().length, 0);
  });
}

test("golden records", () => {
  for (const { file, record, key, nonce } of index.records) {
    const made =
      record === "attach"
        ? attachRecord(Buffer.from(key ?? "", "hex"), Buffer.from(nonce, "hex"))
        : attachedRecord(Buffer.from(nonce, "hex"));
    assert.deepEqual(made, load(file));
  }
});

test("frames are the same for every split of the bytes and every position of the awaited answer", () => {
  const whole = new FrameDecoder().push(everything);
  assert.equal(whole.length, index.frames.length);
  const answer = load("attached-record.bin");
  const random = generator(1);
  for (let round = 0; round < 300; round++) {
    const noise = Buffer.from(Array.from({ length: random(200) }, () => random(256)));
    const input = Buffer.concat([noise, answer.subarray(0, random(answer.length)), answer, everything]);
    const decoder = new FrameDecoder(answer);
    const frames = [];
    for (let at = 0; at < input.length;) {
      const step = 1 + random(round % 2 === 0 ? 7 : 400);
      frames.push(...decoder.push(input.subarray(at, at + step)).map((frame) => ({ ...frame, payload: Buffer.from(frame.payload) })));
      at += step;
    }
    assert.deepEqual(frames, whole);
  }
});

test("lost synchronisation is detected", () => {
  const good = encodeFrame(T.PING, 1);
  for (const [at, value] of [
    [5, 1],
    [6, 0],
    [7, 0xff],
    [2, 2],
  ] as const) {
    const bad = Buffer.from(good);
    bad[at] = value;
    assert.throws(() => new FrameDecoder().push(bad), CodecError);
  }
  assert.throws(() => encodeFrame(T.DATA, 1, Buffer.alloc(MAX_PAYLOAD + 1)), CodecError);
});

test("fuzz: bit flips, truncations and garbage end in frames or a CodecError, nothing else", () => {
  const random = generator(2);
  for (let round = 0; round < 3000; round++) {
    let input = Buffer.from(everything.subarray(random(everything.length)));
    if (round % 3 === 0) input = Buffer.from(Array.from({ length: random(500) }, () => random(256)));
    if (round % 3 === 1) input = Buffer.from(everything);
    for (let flips = random(6); flips > 0 && input.length > 0; flips--) input[random(input.length)]! ^= 1 << random(8);
    input = input.subarray(0, random(input.length + 1));
    const decoder = new FrameDecoder();
    try {
      for (let at = 0; at < input.length; at += 97) {
        for (const frame of decoder.push(input.subarray(at, at + 97))) {
          assert.ok(frame.payload.length <= MAX_PAYLOAD);
          const golden = index.frames[random(index.frames.length)]!;
          const reader = new Reader(frame.payload);
          for (const field of golden.fields) read(reader, field.as);
        }
      }
    } catch (error) {
      assert.ok(error instanceof CodecError, String(error));
    }
  }
});

test("a wrong length or count is refused before memory is allocated", () => {
  const lie = Buffer.from("ffffffff", "hex");
  assert.throws(() => new Reader(lie).bytes(), CodecError);
  assert.throws(() => new Reader(lie).list((r) => r.u8()), CodecError);
  assert.throws(() => new Reader(Buffer.alloc(0)).u8(), CodecError);
  assert.equal(HEADER_BYTES, encodeFrame(T.PING, 1).length);
});

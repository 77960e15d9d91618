// DNS messages: valid queries are parsed, malicious ones are refused.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAddress } from "../../src/egress/addresses.ts";
import {
  addressAnswer,
  addressData,
  mxAnswer,
  RCODE,
  readQuestion,
  srvAnswer,
  txtAnswer,
  TYPE,
  UDP_LIMIT,
  writeAnswer,
  type Question,
} from "../../src/egress/dns.ts";
import { query, readAnswers } from "./helpers/messages.ts";

function question(message: Buffer): Question {
  const asked = readQuestion(message);
  assert.ok(asked && asked.problem === null);
  return asked.question;
}

test("a question is read, and its name compared without case", () => {
  const read = question(query("WWW.Example.Org", TYPE.AAAA));
  assert.equal(read.name, "www.example.org");
  assert.equal(read.type, TYPE.AAAA);
  assert.equal(read.recursion, true);
  // extensions at the end are ignored
  const extended = Buffer.concat([query("a.example", TYPE.A), Buffer.from("0000291000000000000000", "hex")]);
  extended.writeUInt16BE(1, 10);
  assert.equal(question(extended).name, "a.example");
});

test("an invalid host name is read as undefined", () => {
  const raw = (...labels: (Buffer | string)[]): Buffer => {
    const parts = labels.map((label) => Buffer.concat([Buffer.of(label.length), Buffer.from(label as string, "latin1")]));
    return Buffer.concat([query("", TYPE.A).subarray(0, 12), ...parts, Buffer.from([0, 0, 1, 0, 1])]);
  };
  // a dot inside a label must not make it another name
  for (const labels of [["www.example", "org"], ["a\0b", "example"], ["ex ample"], ["\xff"], ["127", "0", "0", "1"], ["*", "example"], []])
    assert.equal(question(raw(...labels)).name, undefined, JSON.stringify(labels));
  assert.equal(question(raw("a".repeat(63), "example")).name, `${"a".repeat(63)}.example`);
});

test("a message that is not a query gets no answer, and a malformed query gets FORMERR", () => {
  const good = query("a.example", TYPE.A);
  for (const length of [0, 1, 11]) assert.equal(readQuestion(good.subarray(0, length)), undefined);
  const answer = Buffer.from(good);
  answer.writeUInt16BE(0x8180, 2);
  assert.equal(readQuestion(answer), undefined);
  for (let length = 12; length < good.length; length++) assert.equal(readQuestion(good.subarray(0, length))?.problem, RCODE.malformed);
  const variants: [string, (message: Buffer) => void, number][] = [
    ["two questions", (m) => m.writeUInt16BE(2, 4), RCODE.malformed],
    ["no question", (m) => m.writeUInt16BE(0, 4), RCODE.malformed],
    ["an update", (m) => m.writeUInt16BE(0x2900, 2), RCODE.notImplemented],
    ["another class", (m) => m.writeUInt16BE(3, m.length - 2), RCODE.notImplemented],
    ["a pointer to itself", (m) => m.writeUInt16BE(0xc00c, 12), RCODE.malformed],
    ["a pointer ahead", (m) => m.writeUInt16BE(0xc010, 12), RCODE.malformed],
    ["a reserved label", (m) => m.writeUInt8(0x40, 12), RCODE.malformed],
    ["a label beyond the end", (m) => m.writeUInt8(63, 12), RCODE.malformed],
  ];
  for (const [what, change, problem] of variants) {
    const message = Buffer.from(good);
    change(message);
    const asked = readQuestion(message);
    assert.equal(asked?.problem, problem, what);
    assert.ok(asked);
    assert.equal(writeAnswer(asked.question, problem, [], UDP_LIMIT).readUInt16BE(0), good.readUInt16BE(0));
  }
  const long = Buffer.concat([
    good.subarray(0, 12),
    ...Array.from({ length: 5 }, () => Buffer.concat([Buffer.of(63), Buffer.alloc(63, "a")])),
    Buffer.alloc(5),
  ]);
  assert.equal(readQuestion(long)?.problem, RCODE.malformed);
});

test("garbage causes neither loops nor exceptions", () => {
  let seed = 42;
  const random = (): number => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648);
  for (let round = 0; round < 5000; round++) {
    const message = Buffer.from(Array.from({ length: random() % 80 }, () => random() % 256));
    if (message.length > 4) message.writeUInt16BE(0x0100, 2);
    readQuestion(message);
  }
});

test("answers repeat the question unchanged and can be parsed", () => {
  const asked = question(query("wWw.example", TYPE.A));
  const answers = ["203.0.113.10", "203.0.113.11"].flatMap((ip) => addressAnswer(ip, 60) ?? []);
  const message = writeAnswer(asked, RCODE.ok, answers, UDP_LIMIT);
  assert.equal(message.readUInt16BE(2), 0x8180);
  assert.ok(message.includes("wWw"));
  assert.deepEqual(
    readAnswers(message).map(({ data }) => [...data].join(".")),
    ["203.0.113.10", "203.0.113.11"],
  );
  const none = writeAnswer(asked, RCODE.noSuchName, [], UDP_LIMIT);
  assert.equal(none.readUInt16BE(2) & 0xf, RCODE.noSuchName);
  assert.deepEqual(readAnswers(none), []);
});

test("records of all supported types", () => {
  const address = parseAddress("2001:db8::10");
  assert.ok(address);
  assert.equal(addressData(address).toString("hex"), "20010db8000000000000000000000010");
  assert.equal(mxAnswer({ priority: 10, exchange: "mx.example" }, 1)?.data.toString("latin1"), "\0\x0a\x02mx\x07example\0");
  const srv = srvAnswer({ priority: 1, weight: 2, port: 443, name: "a.example" }, 1);
  assert.equal(srv?.data.toString("hex"), Buffer.from("\0\x01\0\x02\x01\xbb\x01a\x07example\0", "latin1").toString("hex"));
  // truncated, or taken in its escaped form, it would be another name
  for (const exchange of ["a".repeat(64), "a\\.b.example", "\xe9", `${"a.".repeat(127)}a`])
    assert.equal(mxAnswer({ priority: 1, exchange }, 1), undefined, exchange);
  assert.equal(txtAnswer(["ab", "c"], 1).data.toString("latin1"), "\x02ab\x01c");
});

test("on overflow addresses are left out, and other records are truncated for TCP", () => {
  const asked = question(query("a.example", TYPE.A));
  const many = Array.from({ length: 100 }, (_, i) => addressAnswer(`203.0.113.${i}`, 60)).flatMap((answer) => answer ?? []);
  const message = writeAnswer(asked, RCODE.ok, many, UDP_LIMIT);
  assert.ok(message.length <= UDP_LIMIT);
  assert.ok(readAnswers(message).length > 20);
  assert.equal(message.readUInt16BE(2) & 0x0200, 0);
  const text = writeAnswer(
    asked,
    RCODE.ok,
    [
      txtAnswer(
        Array.from({ length: 9 }, () => "x".repeat(100)),
        60,
      ),
    ],
    UDP_LIMIT,
  );
  assert.equal(text.readUInt16BE(2) & 0x0200, 0x0200);
  assert.deepEqual(readAnswers(text), []);
});

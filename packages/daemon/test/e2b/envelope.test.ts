// Envelopes of Connect's streams.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { ending, envelope, isStreamType, unwrapped } from "../../src/e2b/envd/envelope.ts";

test("an envelope is flags, length and JSON, as the SDKs read it", () => {
  const whole = envelope({ event: { start: { pid: 2623 } } });
  assert.equal(whole.subarray(0, 5).toString("hex"), "0000000020");
  assert.equal(whole.subarray(5).toString(), '{"event":{"start":{"pid":2623}}}');
  assert.equal(ending().toString("latin1"), "\x02\0\0\0\x02{}");
  const failed = ending({ code: "not_found", message: "ä" });
  assert.equal(failed.readUInt32BE(1), failed.length - 5);
  assert.deepEqual(JSON.parse(failed.subarray(5).toString()), { error: { code: "not_found", message: "ä" } });
});

test("a request is one complete, uncompressed envelope", () => {
  assert.equal(unwrapped(envelope({ a: 1 })).toString(), '{"a":1}');
  const compressed = envelope({ a: 1 }, 1);
  for (const wrong of [
    Buffer.alloc(0),
    Buffer.from("{}"),
    envelope({}).subarray(0, -1),
    Buffer.concat([envelope({}), envelope({})]),
    compressed,
  ])
    assert.throws(
      () => unwrapped(wrong),
      (error) => error instanceof ForkdError && error.code === "BAD_REQUEST",
    );
});

test("streams are recognised by their type", () => {
  assert.ok(isStreamType("application/connect+json; charset=utf-8"));
  for (const other of [undefined, "application/json", "application/connect+proto"]) assert.ok(!isStreamType(other));
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { showProgress } from "../src/terminal/progress.ts";

function fakeSink(isTTY: boolean): { written: string[]; sink: { write: (text: string) => void; isTTY: boolean } } {
  const written: string[] = [];
  return { written, sink: { write: (text) => written.push(text), isTTY } };
}

test("work that ends within a second shows nothing", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  for (const isTTY of [true, false]) {
    const { written, sink } = fakeSink(isTTY);
    const display = showProgress({ sink });
    display.onEvent({ step: "Copying", done: 1, total: 2, unit: "bytes" });
    t.mock.timers.tick(900);
    display[Symbol.dispose]();
    assert.deepEqual(written, []);
  }
});

test("a note is printed at once, on a terminal and elsewhere, and is not a step", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  for (const isTTY of [true, false]) {
    const { written, sink } = fakeSink(isTTY);
    const display = showProgress({ sink });
    display.onEvent({ step: "The build is not confined:\x1b[2J no ids.", note: true });
    t.mock.timers.tick(5000);
    display[Symbol.dispose]();
    assert.equal(written.length, 1);
    assert.equal(written[0], `${isTTY ? "\r\x1b[2K" : ""}Warning: The build is not confined: [2J no ids.\n`);
  }
});

test("a terminal gets one line that is rewritten and removed at the end", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  const { written, sink } = fakeSink(true);
  const display = showProgress({ sink });
  display.onEvent({ step: "Copying", done: 512, total: 1024, unit: "bytes" });
  t.mock.timers.tick(1500);
  display[Symbol.dispose]();
  display[Symbol.dispose]();
  assert.ok(written.length > 2);
  assert.ok(written[0]?.startsWith("\r\x1b[2K"));
  assert.match(written[0] ?? "", /Copying \[#{12}\.{12}\] 50% of 1\.0 KiB 1 s$/);
  assert.ok(written.every((text) => !text.includes("\n")));
  assert.equal(written.at(-1), "\r\x1b[2K");
});

test("a pipe gets a line per step and an occasional one in between, without control characters", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  const { written, sink } = fakeSink(false);
  const display = showProgress({ sink });
  display.onEvent({ step: "Installing", done: 1, total: 4, unit: "items" });
  for (let second = 0; second < 4; second++) t.mock.timers.tick(1000);
  display.onEvent({ step: "Packing" });
  for (let second = 0; second < 12; second++) t.mock.timers.tick(1000);
  display[Symbol.dispose]();
  assert.deepEqual(written, ["Installing 25% of 4 (1 s)\n", "Packing (4 s)\n", "Packing (9 s)\n", "Packing (14 s)\n"]);
});

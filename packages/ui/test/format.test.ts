import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, commandLine, duration, plain, visible } from "../src/format.ts";

test("text of a guest hides nothing", () => {
  assert.equal(visible("a\nb\tc\u001b[31m\u007f"), "a␊b␉c␛[31m␡");
  assert.equal(visible("\u202egpj.exe\u200b\u2066"), "\ufffdgpj.exe\ufffd\ufffd");
  assert.equal(visible("<b>ok</b> ✓ 漢"), "<b>ok</b> ✓ 漢");
});

test("output loses sequences of terminals and keeps its lines", () => {
  assert.equal(plain("\u001b[31mred\u001b[0m\r\nnext\ttab"), "red\nnext\ttab");
  assert.equal(plain("\u001b]0;evil title\u0007after\u001b]8;;http://x\u001b\\link"), "afterlink");
  assert.equal(plain("bell\u0007 back\b"), "bell␇ back␈");
});

test("command lines are quoted for a shell", () => {
  assert.equal(commandLine("fork", "python", "-n", 3), "forkd fork python -n 3");
  assert.equal(commandLine("rename", "a b", "it's"), String.raw`forkd rename 'a b' 'it'\''s'`);
  assert.equal(commandLine("files", "ls", "web:/tmp/$(id)\n"), "forkd files ls 'web:/tmp/$(id)\n'");
});

test("sizes and times have one unit", () => {
  assert.deepEqual([0, 1023, 1536, 20 * 1024 ** 2].map(bytes), ["0 B", "1023 B", "1.5 KiB", "20 MiB"]);
  assert.deepEqual([0, 59, 61, 7200, 200_000].map(duration), ["0 s", "59 s", "1 min", "2 h", "2 d"]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { keysIn, press, settle, START, type Action, type TopState } from "../../src/top/keys.ts";
import { rowsOf } from "../../src/top/rows.ts";
import { FACTS, node, running } from "./samples.ts";

import type { Facts } from "../../src/top/rows.ts";

const HEIGHT = 3;

/** Types keys one after the other, as the live display does */
function type(typed: string, from: Partial<TopState> = {}, facts: Facts = FACTS): { state: TopState; actions: Action[] } {
  let state: TopState = { ...START, ...from };
  const actions: Action[] = [];
  const arrange = (): ReturnType<typeof rowsOf> => {
    const rows = rowsOf(facts, state.view);
    state = settle(state, rows, HEIGHT);
    return rows;
  };
  for (const key of keysIn(typed)) {
    const next = press(state, key, arrange(), HEIGHT);
    state = next.state;
    if (next.action) actions.push(next.action);
  }
  arrange();
  return { state, actions };
}

test("bytes of a terminal are keys; unknown sequences are dropped", () => {
  assert.deepEqual(keysIn("a\u001b[A\u001bOB\u001b[5~\u001b[1;5Q\u001b\u0003\r\u007f\u0001é"), [
    "a",
    "up",
    "down",
    "pageup",
    "escape",
    "interrupt",
    "enter",
    "backspace",
    "é",
  ]);
});

test("the selection moves within the rows, and the visible part with it", () => {
  assert.equal(type("").state.selected, "sn-empty");
  assert.equal(type("k").state.selected, "sn-empty");
  assert.equal(type("jj").state.selected, "sb-1");
  assert.deepEqual([type("G").state.selected, type("G").state.offset], ["sb-3", 3]);
  assert.deepEqual([type("Gg").state.selected, type("Gg").state.offset], ["sn-empty", 0]);
  assert.equal(type("\u001b[6~").state.selected, "sb-2");
  assert.equal(type("jjj\u001b[D").state.selected, "sn-python");
});

test("a row that is gone leaves the selection at its place", () => {
  const { state } = type("jjj");
  const rows = rowsOf({ ...FACTS, tree: { roots: [node("python", [running("sb-1", "web")], [])] } }, state.view);
  assert.equal(settle(state, rows, HEIGHT).selected, "sb-1");
  assert.equal(settle(state, [], HEIGHT).selected, undefined);
});

test("f asks for a number: of a snapshot, or of a running sandbox", () => {
  assert.deepEqual(type("jf3\r").actions, [{ kind: "fork", target: { kind: "snapshot", name: "python" }, n: 3 }]);
  assert.deepEqual(type("jjf\r").actions, [{ kind: "fork", target: { kind: "sandbox", name: "sb-1" }, n: 1 }]);
  for (const wrong of ["0", "1001", "x", "1e9", "-1"]) {
    const { state, actions } = type(`jf${wrong}\r`);
    assert.deepEqual(actions, []);
    assert.match(state.message?.text ?? "", /a number from 1 to 1000/);
  }
  assert.deepEqual(type("jf3\u001b").actions, []);
});

test("b branches a sandbox under a typed or a generated tag, and refuses a snapshot", () => {
  assert.deepEqual(type("jjb\r").actions, [{ kind: "branch", id: "sb-1", tag: undefined }]);
  assert.deepEqual(type("jjbx\u007fafter\r").actions, [{ kind: "branch", id: "sb-1", tag: "after" }]);
  assert.match(type("jb").state.message?.text ?? "", /Only a running sandbox/);
});

test("x ends a sandbox only after y", () => {
  assert.deepEqual(type("jjxy").actions, [{ kind: "kill", id: "sb-1" }]);
  assert.deepEqual(type("jj\u001b[3~Y").actions, [{ kind: "kill", id: "sb-1" }]);
  for (const no of ["n", "\r", "\u001b", "q", "x"]) assert.deepEqual(type(`jjx${no}`).actions, []);
  assert.match(type("jx").state.message?.text ?? "", /forkd snapshot rm python/);
});

test("keys typed at a question are text, not commands", () => {
  const { state, actions } = type("jjbqx/");
  assert.deepEqual(actions, []);
  assert.equal(state.prompt?.text, "qx/");
  assert.equal(type(`/${"a".repeat(500)}`).state.prompt?.text.length, 64);
});

test("a search filters while it is typed; Enter keeps it, Esc shows all again", () => {
  assert.equal(type("/we").state.view.filter, "we");
  assert.equal(type("/web\r").state.view.filter, "web");
  assert.equal(type("/web\r").state.prompt, undefined);
  assert.equal(type("/web\u001b").state.view.filter, "");
  assert.equal(type("/web\r\u001b").state.view.filter, "");
});

test("snapshots fold and unfold", () => {
  assert.deepEqual([...type("j ").state.view.collapsed], ["sn-python"]);
  assert.deepEqual([...type("j  ").state.view.collapsed], []);
  assert.deepEqual([...type("j\u001b[D\u001b[C").state.view.collapsed], []);
  assert.deepEqual([...type("C").state.view.collapsed].toSorted(), ["sn-login", "sn-python"]);
  assert.deepEqual([...type("CE").state.view.collapsed], []);
});

test("s goes through the orders, ? shows the keys, q and Ctrl-C end", () => {
  assert.deepEqual(
    ["s", "ss", "sss", "ssss"].map((typed) => type(typed).state.view.sort),
    ["cpu", "memory", "age", "name"],
  );
  assert.equal(type("?").state.help, true);
  assert.equal(type("?x").state.help, false);
  assert.deepEqual(type("q").actions, [{ kind: "quit" }]);
  assert.deepEqual(type("?q").actions, [{ kind: "quit" }]);
  for (const where of ["", "jjb", "/", "?"]) assert.deepEqual(type(`${where}\u0003`).actions, [{ kind: "interrupt" }]);
});

test("a snapshot without a tag cannot be forked", () => {
  const facts = { ...FACTS, tree: { roots: [node(null, [], [])] } };
  const { state, actions } = type("f", {}, facts);
  assert.deepEqual(actions, []);
  assert.match(state.message?.text ?? "", /has no tag/);
});

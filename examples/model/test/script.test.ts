import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { nextAnswer, type Message, type Script } from "../script.ts";

const SCRIPT: Script = {
  prepare: [
    { say: "I look.", call: { tool: "look", arguments: { at: "it" } } },
    { say: "I branch.", call: { tool: "branch", arguments: {} } },
    { say: "I saw {result}." },
  ],
  ways: {
    left: [{ say: "I turn left.", call: { tool: "look", arguments: {} } }, { say: "Left of it is {result}." }],
    right: [{ say: "I turn right." }],
  },
};
const user: Message = { role: "user", text: "Look at it." };
const assistant: Message = { role: "assistant", text: "left and right are ways" };
const tool = (text: string): Message => ({ role: "tool", text });

function say(messages: Message[], tools = ["look", "branch"]): string | undefined {
  return nextAnswer(SCRIPT, { messages, tools })?.text;
}

describe("the scripted model", () => {
  it("advances by one turn for each tool result", () => {
    assert.equal(say([user]), "I look.");
    assert.equal(say([user, assistant, tool("a tree")]), "I branch.");
  });

  it("skips a turn whose tool the request does not offer", () => {
    assert.equal(say([user, assistant, tool("a tree")], ["look"]), "I saw a tree.");
  });

  it("follows the branch that a tool result names", () => {
    assert.equal(say([user, assistant, tool("a tree"), assistant, tool("Your way is: left.")]), "I turn left.");
    assert.equal(say([user, assistant, tool("a tree"), assistant, tool("Your way is: right.")]), "I turn right.");
  });

  it("follows the branch that a later user message names, and counts from there", () => {
    const hinted = [user, assistant, tool("a tree"), assistant, { role: "user", text: "Turn LEFT." } as const];
    assert.equal(say(hinted), "I turn left.");
    assert.equal(say([...hinted, assistant, tool("a house")]), "Left of it is a house.");
  });

  it("ignores branch names in its own messages and in the instructions", () => {
    assert.equal(say([{ role: "system", text: "left" }, user, assistant]), "I look.");
  });

  it("finds the value in a result that is JSON", () => {
    assert.equal(say([user, tool('{"result": "a tree", "error": null}')], ["look"]), "I saw a tree.");
  });

  it("has an empty answer after its last turn", () => {
    assert.equal(say([user, tool("left"), tool("a house"), tool("a tree")]), undefined);
  });
});

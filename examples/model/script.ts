// What the scripted model says next: decided by the conversation it is sent and by nothing else, so copies of an agent may ask at the same time.

/** One message, whichever API it came through */
export type Message = { role: "system" | "user" | "assistant" | "tool"; text: string };

export type Conversation = {
  messages: Message[];
  /** names of the tools that may be called */
  tools: string[];
};

export type Call = { tool: string; arguments: Record<string, unknown> };

/** `{result}` in `say` stands for the last tool result */
export type Turn = { say: string; call?: Call };

export type Script = {
  /** one turn after the other, until the conversation names a way */
  prepare: Turn[];
  /** by words that a user or a tool says; from then on these turns */
  ways: Record<string, Turn[]>;
};

export type Answer = { text: string; call: Call | undefined };

/** The next turn; undefined where the script has ended */
export function nextAnswer(script: Script, { messages, tools }: Conversation): Answer | undefined {
  const heard = messages.map(({ role, text }) => (role === "user" || role === "tool" ? text.toLowerCase() : ""));
  const chosen = Object.entries(script.ways)
    .map(([words, turns]) => ({ turns, at: heard.findLastIndex((text) => text.includes(words)) }))
    .filter(({ at }) => at >= 0)
    .sort((a, b) => b.at - a.at)[0];
  const { turns, at } = chosen ?? { turns: script.prepare, at: -1 };
  const results = messages.filter(({ role }, index) => role === "tool" && index > at);
  const turn = turns.filter(({ call }) => call === undefined || tools.includes(call.tool))[results.length];
  if (turn === undefined) return undefined;
  const last = messages.findLast(({ role }) => role === "tool")?.text ?? "";
  return { text: turn.say.replaceAll("{result}", () => valueOf(last)), call: turn.call };
}

/** Some tools answer in JSON, with the value as one of its fields */
function valueOf(result: string): string {
  const field = /^\{"result":\s*"([^"]*)"/.exec(result);
  return field?.[1] ?? result.trim();
}

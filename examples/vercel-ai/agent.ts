// Vercel AI SDK: an agent branches in the middle of its thought.
// `branch` is a tool without a function of its own, so the agent stands still where it calls it. The call is answered once for each way,
// and every answer continues in a fork of the machine. Tests that no copy has seen pick the winner.

import { openai } from "@ai-sdk/openai";
import { isStepCount, tool, ToolLoopAgent, type ModelMessage } from "ai";
import { Sandbox } from "forkd";
import { z } from "zod";

const MODEL = process.env["OPENAI_MODEL"] ?? "scripted-repair";
const interrupted = new AbortController();
process.once("SIGINT", () => interrupted.abort(new Error("interrupted")));
/** Time to live, in case the program cannot end it. Without a key, an interrupted call creates no machine */
const LIFE = { ttlSecs: 600, idempotencyKey: null, signal: interrupted.signal };

const SLUG = 'def slug(title):\n    return title.replace(" ", "-")\n';
const TASK = `slug(title) in /srv/slug.py is wrong for many titles. A slug has only a-z and 0-9 with single hyphens between them; accents are
dropped, ß becomes ss, and where nothing is left it is "untitled". First look for random titles that break it, put them into \`found\` and write
how many there are as the first line of /srv/notes.txt. Then call \`branch\` with three ways to repair it.
Go the way that is yours, and add a line to /srv/notes.txt.`;
const JUDGE = `
from slug import slug
cases = {"Hello World": "hello-world", " a  b ": "a-b", "C++ & you": "c-you", "Où est l'été?": "ou-est-l-ete", "Straße": "strasse", "!": "untitled"}
print(sum(slug(title) == right for title, right in cases.items()), "of", len(cases))
`;

await using machine = await Sandbox.create(process.env["FORKD_TAG"] ?? "python", LIFE);
await machine.files.write("/srv/slug.py", SLUG);
const asked: ModelMessage = { role: "user", content: TASK };
const { messages, call } = await think(machine, [asked]);
if (call === undefined) throw new Error("the agent never branched");
const { ways } = call.input;
console.log(`branching in the middle of its thought, after ${messages.length} messages, ${ways.length} ways`);
const tips = await machine.fork(ways.length, LIFE);
try {
  const passed = await Promise.all(tips.map(async (tip, index) => continueWith(tip, ways[index] ?? "")));
  console.log(`its own machine was not touched: ${await notesOf(machine)}`);
  const best = passed.indexOf(Math.max(...passed));
  console.log(`winner: ${ways[best]}, ${passed[best]} tests`);
} finally {
  await Promise.all(tips.map(async (tip) => tip.kill()));
}

/** One copy: the same conversation, but `branch` has returned this way */
async function continueWith(tip: Sandbox, way: string): Promise<number> {
  const output = { type: "text", value: `Your way is: ${way}.` } as const;
  const returned: ModelMessage = {
    role: "tool",
    content: [{ type: "tool-result", toolCallId: call?.toolCallId ?? "", toolName: "branch", output }],
  };
  const { text } = await think(tip, [...messages, returned]);
  const { value: found } = await tip.eval("[len(found), found[0]]");
  const [first, ...later] = await notesOf(tip);
  const { stdout } = await tip.exec(["python3", "-c", JUDGE], { cwd: "/srv" });
  console.log(`branch '${way}' on ${tip.id}`);
  console.log(`  shared past: found and its first: ${JSON.stringify(found)}, notes begin with '${first}'`);
  console.log(`  own future:  ${stdout.trim()} tests pass, notes continue with '${later.join("', '")}'`);
  console.log(`  it says: ${text}`);
  return Number.parseInt(stdout, 10);
}

/** Until the agent has an answer, or calls `branch` */
async function think(machine: Sandbox, messages: ModelMessage[]) {
  const agent = new ToolLoopAgent({
    model: openai(MODEL),
    instructions: "You work in a Linux machine of your own, with your tools.",
    stopWhen: isStepCount(30),
    tools: {
      run_python: tool({
        description:
          "Runs Python in your machine and returns what it prints and the value of its last expression. Variables and files stay.",
        inputSchema: z.object({ code: z.string() }),
        execute: async ({ code }) => {
          const done = await machine.eval(code, { throwOnError: false, signal: interrupted.signal });
          return done.traceback ?? `${done.stdout}${done.result ?? ""}`;
        },
      }),
      branch: tool({
        description: "Copies you and your machine once for each way. The result says which way is yours.",
        inputSchema: z.object({ ways: z.array(z.string()) }),
      }),
    },
  });
  const stream = await agent.stream({ messages, abortSignal: interrupted.signal });
  const calls = await stream.toolCalls;
  const call = calls.find(({ toolName, dynamic }) => toolName === "branch" && !dynamic) as
    | { toolCallId: string; input: { ways: string[] } }
    | undefined;
  return { text: await stream.text, messages: [...messages, ...(await stream.responseMessages)], call };
}

async function notesOf(machine: Sandbox): Promise<string[]> {
  return (await machine.files.readText("/srv/notes.txt")).trim().split("\n");
}

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { startModel, type ScriptedModel } from "../server.ts";

const MODEL = "scripted-tour";
const CHAT_TOOLS = [{ type: "function", function: { name: "run_python" } }];
const TOOLS = [{ type: "function", name: "run_python" }];
const TASK = { role: "user", content: "Find a short trip." };
const RESULTS = [
  { role: "tool", tool_call_id: "call_1", content: "20" },
  { role: "tool", tool_call_id: "call_2", content: "1045.2" },
];
const OUTPUTS = RESULTS.map(({ tool_call_id: id, content }) => ({ type: "function_call_output", call_id: id, output: content }));

type Call = { function: { name: string; arguments: string } };
type Completion = { choices: { message: { content: string; tool_calls?: Call[] }; finish_reason: string }[] };
type Chunk = { choices: { delta: { content?: string; tool_calls?: Call[] }; finish_reason: string | null }[]; usage?: object };
type Item = { type: string; content?: { text: string }[]; name?: string; arguments?: string };
type Event = { type: string; delta?: string; sequence_number: number; response?: { status: string; output: Item[] } };

let model: ScriptedModel;
before(async () => {
  model = await startModel();
});
after(async () => model[Symbol.asyncDispose]());

async function post(path: string, body: object): Promise<Response> {
  return fetch(`${model.url}${path}`, { method: "POST", body: JSON.stringify({ model: MODEL, ...body }) });
}

async function dataOf(response: Response): Promise<string[]> {
  return [...(await response.text()).matchAll(/^data: (.*)$/gm)].map((match) => match[1] ?? "");
}

async function messageOf(response: Response): Promise<string> {
  return ((await response.json()) as { error: { message: string } }).error.message;
}

describe("chat completions", () => {
  it("call a tool", async () => {
    const answer = (await (await post("/chat/completions", { messages: [TASK], tools: CHAT_TOOLS })).json()) as Completion;
    const [choice] = answer.choices;
    assert.equal(choice?.finish_reason, "tool_calls");
    assert.equal(choice?.message.content, "I load the cities.");
    const [call] = choice?.message.tool_calls ?? [];
    assert.equal(call?.function.name, "run_python");
    assert.match((JSON.parse(call?.function.arguments ?? "") as { code: string }).code, /json\.load/);
  });

  it("answer after the last tool result", async () => {
    const answer = (await (await post("/chat/completions", { messages: [TASK, ...RESULTS], tools: CHAT_TOOLS })).json()) as Completion;
    assert.equal(answer.choices[0]?.finish_reason, "stop");
    assert.equal(answer.choices[0]?.message.content, "Everything is ready: a random order is 1045.2 long.");
  });

  it("are streamed", async () => {
    const body = { messages: [TASK], tools: CHAT_TOOLS, stream: true, stream_options: { include_usage: true } };
    const data = await dataOf(await post("/chat/completions", body));
    assert.equal(data.pop(), "[DONE]");
    const chunks = data.map((line) => JSON.parse(line) as Chunk);
    assert.equal(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join(""), "I load the cities.");
    assert.deepEqual(
      chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []).map((call) => call.function.name),
      ["run_python"],
    );
    assert.equal(chunks.at(-2)?.choices[0]?.finish_reason, "tool_calls");
    assert.ok(chunks.at(-1)?.usage);
  });

  it("of concurrent copies do not affect each other", async () => {
    const ways = ["nearest neighbour", "2-opt", "simulated annealing"];
    const said = await Promise.all(
      [...ways, ...ways].map(async (way) => {
        const hint = { role: "user", content: [{ type: "text", text: `Continue with ${way}.` }] };
        const answer = (await (
          await post("/chat/completions", { messages: [TASK, ...RESULTS, hint], tools: CHAT_TOOLS })
        ).json()) as Completion;
        return answer.choices[0]?.message.content;
      }),
    );
    assert.deepEqual(
      said,
      [...ways, ...ways].map((way) => `My way is ${way}.`),
    );
  });
});

describe("responses", () => {
  it("call a tool, and answer after its result", async () => {
    const first = (await (await post("/responses", { input: "Find a short trip.", tools: TOOLS })).json()) as { output: Item[] };
    assert.deepEqual(
      first.output.map(({ type }) => type),
      ["message", "function_call"],
    );
    assert.equal(first.output[1]?.name, "run_python");
    const last = (await (await post("/responses", { input: [TASK, ...OUTPUTS], tools: TOOLS })).json()) as { output: Item[] };
    assert.deepEqual(
      last.output.map((item) => item.content?.[0]?.text),
      ["Everything is ready: a random order is 1045.2 long."],
    );
  });

  it("are streamed as numbered events", async () => {
    const events = (await dataOf(await post("/responses", { input: [TASK], tools: TOOLS, stream: true }))).map(
      (line) => JSON.parse(line) as Event,
    );
    assert.deepEqual(
      events.map((event) => event.sequence_number),
      events.map((_, index) => index),
    );
    const deltas = (type: string): string => events.flatMap((event) => (event.type === type ? [event.delta] : [])).join("");
    assert.equal(deltas("response.output_text.delta"), "I load the cities.");
    const last = events.at(-1);
    assert.equal(last?.type, "response.completed");
    assert.equal(last?.response?.status, "completed");
    assert.equal(deltas("response.function_call_arguments.delta"), last?.response?.output[1]?.arguments);
  });

  it("are not stored, and a request for a stored one says so", async () => {
    const response = await post("/responses", { input: "Go on.", previous_response_id: "resp_1" });
    assert.equal(response.status, 400);
    assert.match(await messageOf(response), /the script remembers nothing/);
  });
});

describe("the scripted model's server", () => {
  it("lists its scripts as models", async () => {
    const { data } = (await (await fetch(`${model.url}/models`)).json()) as { data: { id: string }[] };
    assert.ok(data.some(({ id }) => id === MODEL));
  });

  it("refuses a model without a script", async () => {
    for (const path of ["/chat/completions", "/responses"]) {
      const response = await post(path, { model: "gpt" });
      assert.equal(response.status, 404);
      assert.match(await messageOf(response), /no script for the model 'gpt'.*scripted-tour/);
    }
    assert.equal((await post("/embeddings", {})).status, 404);
  });

  it("refuses a conversation that is longer than its script", async () => {
    const response = await post("/chat/completions", { messages: [TASK, ...RESULTS, ...RESULTS, ...RESULTS], tools: CHAT_TOOLS });
    assert.equal(response.status, 400);
    assert.match(await messageOf(response), /no turn for this conversation of 7 messages/);
  });

  it("refuses a body that is not JSON", async () => {
    const response = await fetch(`${model.url}/responses`, { method: "POST", body: "{" });
    assert.equal(response.status, 400);
    assert.match(await messageOf(response), /not JSON/);
  });
});

// A stand-in for a paid model: it speaks the OpenAI API on loopback, and what it says was written beforehand, in scripts/.
// It is no model. It lets the examples run without a key, without network and the same way each time.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { json } from "node:stream/consumers";
import { chatChunks, chatCompletion } from "./chat.ts";
import { fromChat, fromResponses, type ChatRequest, type ResponsesRequest } from "./conversation.ts";
import { responseEvents, responseOf } from "./responses.ts";
import { nextAnswer, type Answer, type Conversation, type Script } from "./script.ts";
import { repair } from "./scripts/repair.ts";
import { tour, tourMcp } from "./scripts/tour.ts";

import type { AddressInfo } from "node:net";

/** Each is a model that can be asked for */
const SCRIPTS: Readonly<Record<string, Script>> = { "scripted-tour": tour, "scripted-repair": repair, "scripted-tour-mcp": tourMcp };

export type ScriptedModel = AsyncDisposable & {
  /** what belongs into OPENAI_BASE_URL */
  url: string;
};

export async function startModel(): Promise<ScriptedModel> {
  const server = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => fail(response, error instanceof SyntaxError ? 400 : 500, String(error)));
  });
  await new Promise<void>((done, failed) => {
    server.once("error", failed).listen(0, "127.0.0.1", done);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /v1/models") {
    send(response, { object: "list", data: Object.keys(SCRIPTS).map((id) => ({ id, object: "model", created: 0, owned_by: "script" })) });
  } else if (route === "POST /v1/chat/completions") {
    const body: ChatRequest = await bodyOf(request);
    const answer = decide(response, body.model, fromChat(body));
    if (answer === undefined) return;
    const { model = "" } = body;
    if (body.stream) stream(response, [...chatChunks(model, answer, { usage: body.stream_options?.include_usage ?? false }), "[DONE]"]);
    else send(response, chatCompletion(model, answer));
  } else if (route === "POST /v1/responses") {
    const body: ResponsesRequest = await bodyOf(request);
    if (body.previous_response_id)
      return fail(response, 400, "previous_response_id is not possible: the script remembers nothing. Send the conversation.");
    const answer = decide(response, body.model, fromResponses(body));
    if (answer === undefined) return;
    const { model = "" } = body;
    if (body.stream) stream(response, responseEvents(model, answer));
    else send(response, responseOf(model, answer));
  } else {
    fail(response, 404, `${route} is not part of the scripted model.`);
  }
}

async function bodyOf<Body extends object>(request: IncomingMessage): Promise<Body> {
  try {
    return (await json(request)) as Body;
  } catch (error) {
    throw new SyntaxError("The request is not JSON.", { cause: error });
  }
}

function decide(response: ServerResponse, model = "", conversation: Conversation): Answer | undefined {
  const script = SCRIPTS[model];
  if (script === undefined) {
    fail(response, 404, `There is no script for the model '${model}'. There is: ${Object.keys(SCRIPTS).join(", ")}.`);
    return undefined;
  }
  const answer = nextAnswer(script, conversation);
  if (answer === undefined)
    fail(response, 400, `The script '${model}' has no turn for this conversation of ${conversation.messages.length} messages.`);
  return answer;
}

function send(response: ServerResponse, body: object, status = 200): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

function stream(response: ServerResponse, events: (object | string)[]): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of events) {
    if (typeof event === "string") response.write(`data: ${event}\n\n`);
    else response.write(`${"type" in event ? `event: ${String(event.type)}\n` : ""}data: ${JSON.stringify(event)}\n\n`);
  }
  response.end();
}

/** The form that OpenAI's clients read; none of these is worth a second try */
function fail(response: ServerResponse, status: number, message: string): void {
  response.setHeader("x-should-retry", "false");
  send(response, { error: { message, type: "invalid_request_error", param: null, code: null } }, status);
}

// Process over WebSocket: data as binary messages, control messages as JSON.

import { once } from "node:events";
import { WebSocketServer, type RawData, type WebSocket } from "ws";
import { socketMessage, socketOpening } from "../api/process.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { describeError } from "../dispatch/problem.ts";
import { parse } from "../dispatch/parse.ts";
import { uiProtocol } from "../dispatch/ui-session.ts";
import type { WatchedProcess } from "../service/processes.ts";
import type { Context } from "./handler.ts";
import type { Upgrade } from "../dispatch/upgrade.ts";

const MAX_MESSAGE_BYTES = 1024 * 1024;
const OPENING_WITHIN_MS = 30_000;
const CLOSE_WITHIN_MS = 2000;
const CHANNEL_BYTE = { stdout: 1, stderr: 2 } as const;
/** Close codes of RFC 6455 */
const CLOSE = { done: 1000, goingAway: 1001, refused: 1008, failed: 1011 } as const;

const server = new WebSocketServer({
  noServer: true,
  maxPayload: MAX_MESSAGE_BYTES,
  perMessageDeflate: false,
  handleProtocols: uiProtocol,
});

type Message = { data: Buffer; isBinary: boolean };

export type Asked = { id: string; context: Context; /** aborted when the client disconnects */ signal: AbortSignal };

/** Resolves when the connection closes; the process continues */
export async function serveProcess(upgrade: Upgrade, asked: Asked): Promise<void> {
  const { services } = asked.context;
  const socket = await accept(upgrade);
  if (!socket) return;
  const over = AbortSignal.any([asked.signal, services.daemon.stopping]);
  const tell = async (message: object): Promise<void> => send(socket, JSON.stringify(message));
  // not once(): it rejects if ws emits an error first, such as an oversized message, and the request would never end
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  const stopHeartbeat = keepAlive(socket, services.limits.heartbeatMs);
  const leave = (): void => closeSoon(socket, services.daemon.stopping.aborted ? CLOSE.goingAway : CLOSE.refused);
  over.addEventListener("abort", leave, { once: true });
  let process: WatchedProcess | undefined;
  try {
    const messages = messagesOf(socket);
    process = await open(await firstOf(messages, over), asked);
    process.dropped.addEventListener("abort", () => socket.terminate(), { once: true });
    await tell({ started: process.started });
    const taking = take(messages, process, async (error) => tell({ error: problemOf(error, asked) }));
    await Promise.race([give(socket, process, tell), taking, closed]);
    closeSoon(socket, CLOSE.done);
  } catch (error) {
    // not awaited: a client that does not read would block the handler
    if (!over.aborted) void tell({ error: problemOf(error, asked) });
    closeSoon(socket, error instanceof ForkdError && error.status < 500 ? CLOSE.refused : CLOSE.failed);
  } finally {
    process?.close();
    stopHeartbeat();
    over.removeEventListener("abort", leave);
    await closed;
  }
}

/** Terminates the connection if the client does not answer the close frame */
function closeSoon(socket: WebSocket, code: number): void {
  socket.close(code);
  // a paused socket would not read the client's close frame
  socket.resume();
  const impatience = setTimeout(() => socket.terminate(), CLOSE_WITHIN_MS);
  socket.once("close", () => clearTimeout(impatience));
}

/** undefined: invalid handshake; ws has sent the error response */
async function accept({ request, socket, head }: Upgrade): Promise<WebSocket | undefined> {
  return new Promise((resolve) => {
    socket.once("close", () => resolve(undefined));
    server.handleUpgrade(request, socket, head, (accepted) => {
      // ws closes the connection after a protocol error
      accepted.on("error", () => undefined);
      resolve(accepted);
    });
  });
}

async function open(first: Message, { id, context }: Asked): Promise<WatchedProcess> {
  const { processes } = context.services.manager;
  const opening = parse(socketOpening, jsonOf(first), "message");
  if ("start" in opening) return processes.startWatched(id, opening.start, context.caller);
  const { process, ...from } = opening.attach;
  return processes.watch(id, process, from, context.caller);
}

/** Sends the process output at the client's speed */
async function give(socket: WebSocket, process: WatchedProcess, tell: (message: object) => Promise<void>): Promise<void> {
  for await (const event of process) {
    if (event.type === "exit") await tell({ exit: event.exit });
    else if (event.type === "lost") await tell({ lost: { channel: event.channel, bytes: event.bytes } });
    else await send(socket, Buffer.concat([Buffer.of(CHANNEL_BYTE[event.channel]), event.bytes]));
  }
}

/** Handles the client's messages in order. Closed stdin of the process does not end the connection */
async function take(messages: AsyncIterable<Message>, process: WatchedProcess, failed: (error: unknown) => Promise<void>): Promise<void> {
  for await (const message of messages) {
    const act = message.isBinary ? async () => process.write(message.data) : actOf(message, process);
    try {
      await act();
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
      await failed(error);
    }
  }
}

function actOf(message: Message, process: WatchedProcess): () => Promise<void> {
  const said = parse(socketMessage, jsonOf(message), "message");
  if ("close_stdin" in said) return async () => process.closeStdin();
  if ("signal" in said) return async () => process.signal(said);
  return async () => process.resize(said.resize);
}

function jsonOf({ data, isBinary }: Message): unknown {
  try {
    if (!isBinary) return JSON.parse(data.toString("utf8"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new ForkdError("BAD_REQUEST", "Cannot understand the message: it is not JSON.");
}

/** One message at a time: the socket is paused while a message is handled */
async function* messagesOf(socket: WebSocket): AsyncGenerator<Message> {
  const waiting: Message[] = [];
  let wake: (() => void) | undefined;
  socket.on("message", (data: RawData, isBinary: boolean) => {
    if (socket.readyState !== socket.OPEN) return;
    waiting.push({ data: data as Buffer, isBinary });
    socket.pause();
    wake?.();
  });
  socket.once("close", () => wake?.());
  while (socket.readyState === socket.OPEN || waiting.length > 0) {
    const message = waiting.shift();
    if (message) {
      yield message;
      continue;
    }
    socket.resume();
    await new Promise<void>((resolve) => (wake = resolve));
  }
}

async function firstOf(messages: AsyncGenerator<Message>, over: AbortSignal): Promise<Message> {
  const late = AbortSignal.timeout(OPENING_WITHIN_MS);
  const stop = AbortSignal.any([late, over]);
  const stopped = once(stop, "abort").then(() => {
    if (!late.aborted) throw over.reason;
    throw new ForkdError("REQUEST_TIMEOUT", "Cannot begin: the first message did not come in time.");
  });
  const first = await Promise.race([messages.next(), stopped]);
  if (first.done) throw new ForkdError("CANCELLED", "The client disconnected.");
  return first.value;
}

/** Resolves when the bytes are written (backpressure), or immediately if the client has disconnected */
async function send(socket: WebSocket, data: string | Buffer): Promise<void> {
  await new Promise<void>((resolve) => socket.send(data, () => resolve()));
}

function keepAlive(socket: WebSocket, everyMs: number): () => void {
  let isAlive = true;
  socket.on("pong", () => (isAlive = true));
  socket.on("message", () => (isAlive = true));
  const timer = setInterval(() => {
    // a paused socket does not read its pong
    if (!isAlive && !socket.isPaused) socket.terminate();
    isAlive = false;
    socket.ping();
  }, everyMs);
  return () => clearInterval(timer);
}

function problemOf(error: unknown, { context }: Asked): object {
  return describeError(error, context.caller, context.services).problem;
}

// Client of Jupyter's kernel and terminal WebSockets, through the daemon's proxy.

import { randomUUID } from "node:crypto";
import { on, once } from "node:events";
import { WebSocket } from "ws";

type Message = { msg_type: string; parent_header: { msg_id?: string }; content: Record<string, unknown> };

export class Jupyter {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, headers: Record<string, string>) {
    this.#url = url;
    this.#headers = headers;
  }

  async call<T>(path: string, method: "GET" | "POST" = "GET"): Promise<T> {
    const response = await fetch(`${this.#url}${path}`, { method, headers: this.#headers });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  /** Runs code and returns the value of the last expression, or the name of the error */
  async execute(kernel: string, code: string): Promise<string> {
    using socket = await this.#open(`/api/kernels/${kernel}/channels`);
    const header = { msg_id: randomUUID(), msg_type: "execute_request", session: randomUUID(), username: "test", version: "5.3" };
    socket.send({ channel: "shell", header, parent_header: {}, metadata: {}, content: { code, silent: false } });
    let value = "";
    for await (const message of socket.messages<Message>()) {
      if (message.parent_header.msg_id !== header.msg_id) continue;
      if (message.msg_type === "execute_result") value = (message.content["data"] as Record<string, string>)["text/plain"] ?? "";
      if (message.msg_type === "error") value = String(message.content["ename"]);
      if (message.msg_type === "status" && message.content["execution_state"] === "idle") break;
    }
    return value;
  }

  /** Types a line in a terminal and reads until the pattern appears */
  async type(terminal: string, line: string, pattern: RegExp): Promise<string> {
    using socket = await this.#open(`/terminals/websocket/${terminal}`);
    socket.send(["stdin", `${line}\r`]);
    let screen = "";
    for await (const [kind, text] of socket.messages<[string, string]>()) {
      if (kind === "stdout") screen += text;
      if (pattern.test(screen)) break;
    }
    return screen;
  }

  async #open(path: string): Promise<JsonSocket> {
    const socket = new WebSocket(`${this.#url.replace("http", "ws")}${path}`, { headers: this.#headers });
    const messages = on(socket, "message", { close: ["close"] });
    await once(socket, "open");
    return new JsonSocket(socket, messages);
  }
}

class JsonSocket implements Disposable {
  readonly #socket: WebSocket;
  readonly #messages: AsyncIterable<Buffer[]>;

  constructor(socket: WebSocket, messages: AsyncIterable<Buffer[]>) {
    this.#socket = socket;
    this.#messages = messages;
  }

  send(message: unknown): void {
    this.#socket.send(JSON.stringify(message));
  }

  async *messages<T>(): AsyncGenerator<T> {
    for await (const [data] of this.#messages) if (data) yield JSON.parse(data.toString()) as T;
  }

  [Symbol.dispose](): void {
    this.#socket.terminate();
  }
}

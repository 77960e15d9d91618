// A guest with a scripted agent, and the egress that the host gives it.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { patience } from "../../../../../tests/helpers/patience.ts";
import { until } from "../../../../../tests/helpers/until.ts";
import type { AddressInfo } from "node:net";
import { Reader, Writer } from "../../../src/util/codec.ts";
import type { AgentConnection } from "../../../src/agent/wire/connection.ts";
import { CHANNEL, T, type Frame } from "../../../src/agent/wire/protocol.ts";
import { Egress } from "../../../src/egress/egress.ts";
import { Network, type ConnectionEvent } from "../../../src/egress/network.ts";
import type { ConnectionRecord } from "../../../src/egress/outgoing.ts";
import { NO_NETWORK, type NetworkPolicy } from "../../../src/egress/policy.ts";
import { FakeAgent } from "../../agent/fake-agent.ts";
import { FakeUpstream } from "./fake-upstream.ts";

export const FIRST = 0x80000000;

export class Dialler implements AsyncDisposable {
  readonly agent: FakeAgent;
  readonly connection: AgentConnection;
  readonly egress: Egress;
  readonly network: Network;
  readonly upstream: FakeUpstream;
  readonly events: { event: ConnectionEvent; record: ConnectionRecord }[] = [];
  readonly spent: number[] = [];
  #next = FIRST;

  private constructor(agent: FakeAgent, connection: AgentConnection, policy: Partial<NetworkPolicy>, upstream: FakeUpstream) {
    this.agent = agent;
    this.connection = connection;
    this.upstream = upstream;
    this.network = new Network({
      upstream,
      isRoutable: async () => true,
      onConnection: (_owner, event, record) => this.events.push({ event, record }),
      onSpent: (_owner, bytes) => this.spent.push(bytes),
    });
    const owner = { sandbox: "sb-test", snapshot: "test" };
    this.egress = new Egress(connection, { network: this.network, owner, policy: { ...NO_NETWORK, ...policy } });
  }

  static async make(policy: Partial<NetworkPolicy>, records: FakeUpstream["records"] = {}): Promise<Dialler> {
    const agent = await FakeAgent.listen(() => undefined);
    return new Dialler(agent, await agent.connect(), policy, new FakeUpstream(records));
  }

  /** Sends a DIAL; returns its stream */
  dial(ip: string, port: number, names: string[] = [], stream = this.#next++): number {
    this.agent.send(
      T.DIAL,
      stream,
      new Writer()
        .str(ip)
        .u32(port)
        .list(names, (w, name) => void w.str(name))
        .done(),
    );
    return stream;
  }

  /** Sends a RESOLVE and waits for its answer: the message, and the addresses for the agent */
  async resolve(message: Buffer): Promise<{ response: Buffer; name: string; addresses: string[] }> {
    const stream = this.#next++;
    this.agent.send(T.RESOLVE, stream, new Writer().bytes(message).done());
    const reader = new Reader((await this.frame(stream, T.RESULT)).payload);
    return { response: reader.bytes(), name: reader.str(), addresses: reader.list((item) => item.str()) };
  }

  /** The first frame of this type on a stream */
  async frame(stream: number, type: number): Promise<Frame> {
    const find = (): Frame | undefined => this.agent.received.find((frame) => frame.stream === stream && frame.type === type);
    await until(() => find() !== undefined);
    const found = find();
    assert.ok(found);
    return found;
  }

  /** Why a DIAL was refused */
  async refusal(stream: number): Promise<string> {
    const reader = new Reader((await this.frame(stream, T.ERROR)).payload);
    reader.str();
    return reader.str();
  }

  /** All bytes received on a stream so far */
  bytesOn(stream: number): Buffer {
    const frames = this.agent.received.filter((frame) => frame.stream === stream && frame.type === T.DATA);
    return Buffer.concat(frames.map(({ payload }) => payload.subarray(1)));
  }

  eof(stream: number): void {
    this.agent.send(T.EOF, stream, Buffer.of(CHANNEL.stdin));
  }

  /** Several round trips, after which pending frames of the host have arrived */
  async settle(): Promise<void> {
    for (let i = 0; i < 20; i++) await this.connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.agent[Symbol.asyncDispose]();
  }
}

/** A server on the loopback of the test's machine */
export class LocalServer implements AsyncDisposable {
  readonly sockets: Socket[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async listen(handle: (socket: Socket) => void): Promise<LocalServer> {
    const server = createServer({ allowHalfOpen: true });
    const local = new LocalServer(server);
    server.on("connection", (socket) => {
      local.sockets.push(socket);
      socket.on("error", () => undefined); // these tests reset clients
      handle(socket);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return local;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get rule(): string {
    return `127.0.0.1:${this.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

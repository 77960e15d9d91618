// Listeners in the guest, and connections to them.

import { isIP } from "node:net";
import { ForkdError } from "../errors.ts";
import { CodecError, Writer } from "../util/codec.ts";
import type { AgentConnection } from "./wire/connection.ts";
import { T } from "./wire/protocol.ts";
import { GuestSocket, type ConnectOptions } from "./socket.ts";
import { AgentError } from "./wire/stream.ts";

const LOOK_WITHIN_MS = 10_000;
const LOOPBACK = "127.0.0.1";

export type Listener = {
  port: number;
  /** an IP address of the guest; `0.0.0.0` and `::` mean all of them */
  address: string;
  family: "ipv4" | "ipv6";
  /** the process that listens, if requested and found */
  process?: { pid: number; name: string };
};

export async function listListeners(
  agent: AgentConnection,
  opts: { owners: boolean; signal?: AbortSignal | undefined },
): Promise<Listener[]> {
  const payload = new Writer().u8(opts.owners ? 1 : 0).done();
  const reader = await agent.call(T.LISTENERS, payload, { timeoutMs: LOOK_WITHIN_MS, signal: opts.signal });
  const listeners = reader.list((item): Listener => {
    const [address, port, pid, name] = [item.str(), item.u32(), item.u32(), item.str()];
    const version = isIP(address);
    if (version === 0 || port < 1 || port > 65_535) throw new CodecError("a listener without an address");
    return { port, address, family: version === 6 ? "ipv6" : "ipv4", ...(pid === 0 ? {} : { process: { pid, name } }) };
  });
  return listeners.toSorted((a, b) => a.port - b.port);
}

/** Address at which each port was found. Most servers listen on the loopback address; only the others are remembered */
export class PortFinder {
  readonly #hosts = new Map<number, string>();

  /** Connects to the server on a port, at whichever address it listens; rejects with PORT_CLOSED when there is none */
  async connect(agent: AgentConnection, port: number, opts: ConnectOptions = {}): Promise<GuestSocket> {
    const known = this.#hosts.get(port) ?? LOOPBACK;
    try {
      return await GuestSocket.connect(agent, port, { ...opts, host: known });
    } catch (error) {
      if (!isRefused(error)) throw error;
      this.#hosts.delete(port);
      for (const host of await this.#candidates(agent, port, opts.signal)) {
        if (host === known) continue;
        const socket = await GuestSocket.connect(agent, port, { ...opts, host }).catch(ignoreRefused);
        if (!socket) continue;
        this.#hosts.set(port, host);
        return socket;
      }
      throw error;
    }
  }

  async #candidates(agent: AgentConnection, port: number, signal: AbortSignal | undefined): Promise<string[]> {
    const listeners = await listListeners(agent, { owners: false, signal });
    return listeners.filter((listener) => listener.port === port).map(({ address }) => ANY[address] ?? address);
  }
}

const ANY: Record<string, string> = { "0.0.0.0": LOOPBACK, "::": "::1" };

function isRefused(error: unknown): boolean {
  return error instanceof ForkdError && error.cause instanceof AgentError && error.cause.errno === "ECONNREFUSED";
}

function ignoreRefused(error: unknown): undefined {
  if (!(error instanceof ForkdError && error.code === "PORT_CLOSED")) throw error;
}

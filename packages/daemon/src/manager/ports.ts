// Servers inside running sandboxes: what listens, and connections to it.

import type { PortInfo } from "../api/ports.ts";
import { ForkdError } from "../errors.ts";
import type { GuestSocket } from "../guest/socket.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";

/** The agent serves 4096 streams, and programs and files need some too */
const MAX_CONNECTIONS = 1024;

/** A sandbox whose servers are used; it counts as used until this is closed */
export type OpenSandbox = {
  /** its id, by whichever name it was asked for */
  readonly id: string;
  /** Rejects with PORT_CLOSED when nothing listens there */
  connect(port: number, signal?: AbortSignal): Promise<GuestSocket>;
  /** What an error of such a connection means when the sandbox has ended */
  explain(error: unknown): unknown;
  close(): void;
};

export class Ports {
  readonly #sandboxes: Sandboxes;
  readonly #registry: Registry;
  readonly #connections = new WeakMap<Sandbox, number>();

  constructor(parts: { sandboxes: Sandboxes; registry: Registry }) {
    this.#sandboxes = parts.sandboxes;
    this.#registry = parts.registry;
  }

  async list(id: string, signal: AbortSignal): Promise<PortInfo[]> {
    const listeners = await this.#sandboxes.use(id, async (sandbox) => sandbox.listeners(signal));
    return listeners.map(({ port, address, family, process }) => ({ port, address, family, protocol: "tcp", process: process ?? null }));
  }

  /** The id behind an id or name; undefined: there is none */
  idOf(idOrName: string): string | undefined {
    return this.#registry.find(idOrName)?.row.id;
  }

  /** Throws NOT_FOUND, SANDBOX_PAUSED, SANDBOX_SUSPENDED, VMM_EXITED or SANDBOX_LOST */
  async open(id: string): Promise<OpenSandbox> {
    const { sandbox, explain, release } = await this.#sandboxes.hold(id);
    const connect = async (port: number, signal?: AbortSignal): Promise<GuestSocket> => {
      try {
        return await this.#connect(sandbox, port, signal);
      } catch (error) {
        throw explain(error);
      }
    };
    return { id: sandbox.id, connect, explain, close: release };
  }

  async #connect(sandbox: Sandbox, port: number, signal: AbortSignal | undefined): Promise<GuestSocket> {
    const count = this.#connections.get(sandbox) ?? 0;
    if (count >= MAX_CONNECTIONS)
      throw new ForkdError("BUSY", `Cannot connect to port ${port} of the guest: it has ${MAX_CONNECTIONS} connections already.`);
    this.#connections.set(sandbox, count + 1);
    const ended = (): void => void this.#connections.set(sandbox, (this.#connections.get(sandbox) ?? 1) - 1);
    try {
      const socket = await sandbox.connect(port, { signal });
      return socket.once("close", ended);
    } catch (error) {
      ended();
      throw error;
    }
  }
}

// Ports of running sandboxes: listening servers, and connections to them.

import type { Duplex } from "node:stream";
import type { PortInfo } from "../api/ports.ts";
import type { SandboxInfo } from "../api/sandbox.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { GuestSocket } from "@forkd/runtime/agent/socket";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import { DEFAULT_PROJECT } from "../store/project-names.ts";
import type { Caller, Viewer } from "./caller.ts";
import type { Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";

/** Below the agent's limit of 4096 streams: programs and files need some too */
const MAX_CONNECTIONS = 1024;

/** Facts by which access to a sandbox is decided */
export type KnownSandbox = Pick<SandboxInfo, "id" | "project" | "name" | "state" | "metadata" | "created_by">;

/** A sandbox with a lease for its ports, held until `close()` */
export type OpenSandbox = {
  /** the id, also if the sandbox was requested by name */
  readonly id: string;
  /** Rejects with PORT_CLOSED if no server listens on the port */
  connect(port: number, signal?: AbortSignal): Promise<Duplex>;
  /** Replaces an error of a connection by the end of the sandbox, if that is its cause */
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

  async list(id: string, caller: Pick<Caller, "project" | "signal">): Promise<PortInfo[]> {
    const listeners = await this.#sandboxes.use(id, caller, async (sandbox) => sandbox.listeners(caller.signal));
    return listeners.map(({ port, address, family, process }) => ({ port, address, family, protocol: "tcp", process: process ?? null }));
  }

  /**
   * For clients that are not authenticated yet: a sandbox of any project by its id. A name is looked up in the named project,
   * without one in `default`. undefined: no such sandbox
   */
  find(idOrName: string, project: string = DEFAULT_PROJECT): KnownSandbox | undefined {
    return (this.#registry.byId(idOrName) ?? this.#registry.find(idOrName, { project }))?.row;
  }

  /** Throws NOT_FOUND, SANDBOX_PAUSED, SANDBOX_SUSPENDED, VMM_EXITED or SANDBOX_LOST */
  async open(id: string, viewer: Viewer): Promise<OpenSandbox> {
    const lease = await this.#sandboxes.lease(id, viewer);
    const { sandbox } = lease;
    const connect = async (port: number, signal?: AbortSignal): Promise<Duplex> => {
      try {
        return await this.#connect(sandbox, port, signal);
      } catch (error) {
        throw lease.explain(error);
      }
    };
    return { id: sandbox.id, connect, explain: (error) => lease.explain(error), close: () => lease.release() };
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

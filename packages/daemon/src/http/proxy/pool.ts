// Connections to servers in guests: kept for the next request for a moment, and gone with their sandbox.

import { Agent, type AgentOptions, type ClientRequest, type ClientRequestArgs } from "node:http";
import type { Duplex } from "node:stream";
import type { OpenSandbox } from "../services.ts";

/** Below the five seconds after which node's own servers close an idle connection */
const IDLE_MS = 4000;
const MAX_IDLE = 32;
/** No server gives up a connection so soon after it has answered on it, without having said so */
const FRESH_MS = 1000;

type Created = (error: Error | null, socket: Duplex) => void;
/** What a request tells its agent */
export type GuestTarget = { sandbox: OpenSandbox; guestPort: number; signal: AbortSignal };

export class ServerPool {
  readonly #agents = new Map<string, PortAgent>();
  /** for what must not meet a connection that the server is just closing */
  readonly #single = new PortAgent({ keepAlive: false });

  /** A connection of its own, that nobody had before and nobody gets after */
  get single(): Agent {
    return this.#single;
  }

  /** The connections of one port. What cannot be sent again does not get one that the server may just be closing */
  agentOf({ sandbox, guestPort }: GuestTarget, opts: { mayRepeat: boolean }): Agent {
    const name = `${sandbox.id}:${guestPort}`;
    const known = this.#agents.get(name);
    if (known) return opts.mayRepeat || known.isFresh ? known : this.#single;
    const agent = new PortAgent({ keepAlive: true, maxFreeSockets: MAX_IDLE }, () => this.#agents.delete(name));
    this.#agents.set(name, agent);
    return agent;
  }

  close(): void {
    for (const agent of this.#agents.values()) agent.destroy();
  }
}

class PortAgent extends Agent {
  readonly #idle = new WeakMap<Duplex, { timer: NodeJS.Timeout; sinceMs: number }>();
  readonly #onEmpty: () => void;

  constructor(opts: AgentOptions, onEmpty: () => void = () => undefined) {
    super(opts);
    this.#onEmpty = onEmpty;
  }

  /** Whether the next connection is a new one, or was in use a moment ago */
  get isFresh(): boolean {
    const next = Object.values(this.freeSockets)[0]?.at(-1);
    return next === undefined || performance.now() - (this.#idle.get(next)?.sinceMs ?? 0) < FRESH_MS;
  }

  override createConnection(options: ClientRequestArgs, created?: Created): undefined {
    const { sandbox, guestPort, signal } = options as ClientRequestArgs & GuestTarget;
    sandbox.connect(guestPort, signal).then(
      (socket) => {
        socket.once("close", () => setImmediate(() => this.#forget()));
        created?.(null, asSocket(socket));
      },
      // node takes it without a socket; its types do not
      (error: Error) => (created as ((error: Error) => void) | undefined)?.(error),
    );
  }

  override keepSocketAlive(socket: Duplex): boolean {
    // false: the server has said that it will close it; the types know nothing of that
    if ((super.keepSocketAlive(socket) as unknown) === false) return false;
    this.#idle.set(socket, { timer: setTimeout(() => socket.destroy(), IDLE_MS), sinceMs: performance.now() });
    return true;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    clearTimeout(this.#idle.get(socket)?.timer);
    super.reuseSocket(socket, request);
  }

  #forget(): void {
    if ([this.sockets, this.freeSockets, this.requests].every((some) => Object.keys(some).length === 0)) this.#onEmpty();
  }
}

/** With what node's agent does to a socket and this one needs nothing of */
function asSocket(stream: Duplex): Duplex {
  const nothing = (): Duplex => stream;
  const destroySoon = (): Duplex => stream.end(() => stream.destroy());
  return Object.assign(stream, {
    ref: nothing,
    unref: nothing,
    setKeepAlive: nothing,
    setNoDelay: nothing,
    setTimeout: nothing,
    destroySoon,
  });
}

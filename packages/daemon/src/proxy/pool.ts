// Connection pool for guest servers: short keep-alive, closed with the sandbox.

import { Agent, type AgentOptions, type ClientRequest, type ClientRequestArgs } from "node:http";
import type { Duplex } from "node:stream";
import type { OpenSandbox } from "../service/ports.ts";

/** Below the 5 s after which Node's servers close idle connections */
const IDLE_MS = 4000;
const MAX_IDLE = 32;
/** Idle time within which a connection is assumed to be still open */
const FRESH_MS = 1000;

type Created = (error: Error | null, socket: Duplex) => void;
/** Target of a request, as passed to its agent */
export type GuestTarget = { sandbox: OpenSandbox; guestPort: number; signal: AbortSignal };

export class ServerPool {
  readonly #agents = new Map<string, PortAgent>();
  /** for requests that must not use a connection that the server may be closing */
  readonly #single = new PortAgent({ keepAlive: false });

  /** Agent that opens one connection per request */
  get single(): Agent {
    return this.#single;
  }

  /** Agent of one port. A request that cannot be repeated gets no connection that the server may be closing */
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

  /** Whether the next connection is new or was used within FRESH_MS */
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
      // Node's callback accepts an error without a socket; its types do not
      (error: Error) => (created as ((error: Error) => void) | undefined)?.(error),
    );
  }

  override keepSocketAlive(socket: Duplex): boolean {
    // false: the server announced the close; Node's types lack this result
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

/** Adds the socket methods that Node's agent calls; they have no effect on a guest stream */
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

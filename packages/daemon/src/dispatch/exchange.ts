// One request with its response, identity and abort signal.

import { randomUUID } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { allows, type TransportKind } from "./auth.ts";
import { DEFAULT_PROJECT } from "../store/project-names.ts";
import type { ServerResponse } from "node:http";
import type { Caller } from "../service/caller.ts";
import type { Identity } from "../store/tokens.ts";
import type { Incoming, Tls } from "./listener.ts";

const REQUEST_ID = /^[A-Za-z0-9._-]{1,64}$/;

export type Transport = { kind: TransportKind; tls: Tls | null };

export class Exchange {
  readonly request: Incoming;
  readonly response: ServerResponse;
  readonly transport: Transport;
  readonly id: string;
  readonly method: string;
  readonly startMs: number = performance.now();
  /** read at the start: a closed socket has no remote address. Behind a gateway, the address that the gateway states */
  remote: string;
  /** a gateway of the cluster has signed the request */
  isFromGateway = false;
  /** identity that a gateway of the cluster vouches for */
  stated: Identity | null = null;
  /** aborted when the client disconnects, the token is revoked or the daemon stops */
  readonly controller: AbortController = new AbortController();
  identity: Identity | null = null;
  /** creator of the request's sandbox; read at the start, because the sandbox may end before the audit entry */
  maker: string | null = null;
  /** the work continues after the client disconnects; the client can fetch the answer later */
  isDetached = false;

  constructor(request: Incoming, response: ServerResponse, transport: Transport) {
    const given = request.headers["x-request-id"];
    this.request = request;
    this.response = response;
    this.transport = transport;
    this.id = typeof given === "string" && REQUEST_ID.test(given) ? given : randomUUID();
    this.method = request.method ?? "GET";
    this.remote = transport.kind === "unix" ? "unix" : (request.socket.remoteAddress ?? "unknown");
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  get caller(): Caller {
    const { identity } = this;
    return {
      principal: identity?.name ?? "nobody",
      project: identity?.project ?? DEFAULT_PROJECT,
      scope: identity?.scope,
      session: identity?.session,
      isAdmin: identity !== null && allows(identity, "admin"),
      isOperator: identity !== null && allows(identity, "operator"),
      mayExec: identity !== null && allows(identity, "exec"),
      maxSandboxes: identity?.maxSandboxes ?? null,
      requestId: this.id,
      signal: this.signal,
    };
  }

  /** The client closed its sending side, or the connection closed */
  leave(): void {
    if (!this.isDetached && !this.response.writableFinished) this.controller.abort(new ForkdError("CANCELLED", "The client disconnected."));
  }
}

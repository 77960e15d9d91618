// Requests of the gateway itself that change a node: cordon, and the steps of a move.

import { ForkdError, type ErrorCode } from "@forkd/runtime/errors";
import { EVERYWHERE } from "./signer.ts";
import type { MoveStep } from "@forkd/daemon/api/cluster";
import type { Problem } from "@forkd/daemon/api/common";
import type { Node, Reply } from "./node.ts";

/** A suspension writes the memory of the sandbox */
const STEP_WITHIN_MS = 600_000;

/** Throws the node's refusal, or NODE_UNREACHABLE */
export async function step<V>(node: Node, body: MoveStep): Promise<V> {
  const bytes = Buffer.from(JSON.stringify(body));
  const reply = await node.ask("POST", "/v1/cluster/moves", { as: EVERYWHERE, body: bytes, timeoutMs: STEP_WITHIN_MS });
  if (reply.status !== 200) throw refusalOf(reply);
  return reply.body as V;
}

export function refusalOf({ body, status }: Reply): ForkdError {
  const { error = `The node answers ${status}.`, code = "BAD_GATEWAY", hint, details } = body as Partial<Problem>;
  return new ForkdError(code as ErrorCode, error, { ...(hint === undefined ? {} : { hint }), ...(details ? { details } : {}) });
}

// What the handlers of the REST routes have in common.

import { respond } from "@forkd/daemon/dispatch/respond";
import { readJson } from "@forkd/daemon/streams/body";
import { ForkdError } from "@forkd/runtime/errors";
import type { RouteName } from "@forkd/daemon/api/routes";
import type { Asked } from "./cluster.ts";

export type RestRoute = Exclude<RouteName, "proxyRequest">;
export type Handler = (asked: Asked) => Promise<void>;
export type Body = Record<string, unknown>;

/** Answered by the gateway itself */
export function own(make: (asked: Asked) => unknown): Handler {
  return async (asked) => respond(asked.exchange, { status: 200, body: await make(asked) });
}

/** JSON object; the node validates its fields */
export async function bodyOf({ exchange, cluster }: Asked): Promise<Body> {
  const { request } = exchange;
  const type = request.headers["content-type"];
  if (type !== undefined && !/^\s*application\/json\s*(;|$)/i.test(type))
    throw new ForkdError("UNSUPPORTED_MEDIA_TYPE", "Cannot read the body: its Content-Type is not application/json.");
  const value = await readJson(request, cluster.limits);
  if (value === undefined) return {};
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new ForkdError("BAD_REQUEST", "Cannot accept the request: body: expected object.");
  return value as Body;
}

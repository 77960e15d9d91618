// Types of REST handlers: validated input, and a response that the route declares.

import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import type * as z from "zod";
import type { Input, RouteName, routes } from "../api/routes.ts";
import type { Answer as AnyAnswer } from "../dispatch/answer.ts";
import type { Services } from "../dispatch/services.ts";
import type { Takeover } from "../dispatch/upgrade.ts";
import type { Caller } from "../service/caller.ts";

/** All routes except the proxy's, which has its own front end */
export type RestRoute = Exclude<RouteName, "proxyRequest">;

type Wire<T> = T extends z.ZodType
  ? z.output<T>
  : T extends "text"
    ? string | Readable
    : T extends "bytes" | "events"
      ? Readable
      : T extends "upgrade"
        ? Takeover
        : undefined;

type Responses<N extends RestRoute> = (typeof routes)[N]["responses"];

export type Answer<N extends RestRoute> = {
  [S in keyof Responses<N>]: Omit<AnyAnswer, "status" | "body"> & { status: S } & (Wire<Responses<N>[S]> extends undefined
      ? { body?: undefined }
      : { body: Wire<Responses<N>[S]> });
}[keyof Responses<N>];

export type Context = {
  services: Services;
  caller: Caller;
  headers: IncomingHttpHeaders;
  /** a gateway of the cluster has signed the request */
  isFromGateway: boolean;
};

export type Handler<N extends RestRoute> = (input: Input<N>, context: Context) => Answer<N> | Promise<Answer<N>>;

/** Total map: a route without a handler is a type error */
export type Handlers = { [N in RestRoute]: Handler<N> };

/** Cursor header of the next page, if any */
export function nextPage(cursor: string | null): { headers?: Record<string, string> } {
  return cursor === null ? {} : { headers: { "x-next-cursor": cursor } };
}

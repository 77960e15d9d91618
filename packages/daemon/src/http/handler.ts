// What a handler is: input that has been checked, in; an answer that the route allows, out.

import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import type { Readable } from "node:stream";
import type * as z from "zod";
import type { Input, RouteName, routes } from "../api/routes.ts";
import type { Caller } from "../manager/caller.ts";
import type { Exchange } from "./proxy/forward.ts";
import type { Services } from "./services.ts";
import type { Takeover } from "./upgrade.ts";

type Wire<T> = T extends z.ZodType
  ? z.output<T>
  : T extends "text"
    ? string | Readable
    : T extends "bytes" | "events"
      ? Readable
      : T extends "upgrade"
        ? Takeover
        : T extends "any"
          ? Passage
          : undefined;

/** Writes an answer that comes from elsewhere, beside headers of ours: its head at once, or it rejects; resolves when it is out */
export type Passage = (to: ServerResponse, own: Record<string, unknown>) => Promise<void>;

type Responses<N extends RouteName> = (typeof routes)[N]["responses"];

/** An answer as the sender sees it */
export type AnyAnswer = {
  status: number;
  body?: unknown;
  headers?: Record<string, string>;
  /** send the headers at once: the first byte may be long in coming */
  flush?: boolean;
};

export type Answer<N extends RouteName> = {
  [S in keyof Responses<N>]: Omit<AnyAnswer, "status" | "body"> & { status: Responses<N>[S] extends "any" ? number : S } & (Wire<
      Responses<N>[S]
    > extends undefined
      ? { body?: undefined }
      : { body: Wire<Responses<N>[S]> });
}[keyof Responses<N>];

export type Context = {
  services: Services;
  caller: Caller;
  headers: IncomingHttpHeaders;
  /** of a request for a server in a guest */
  exchange: Exchange | null;
};

export type Handler<N extends RouteName> = (input: Input<N>, context: Context) => Answer<N> | Promise<Answer<N>>;

/** A route without a handler is an error of types */
export type Handlers = { [N in RouteName]: Handler<N> };

/** The header that leads to the next page, where there is one */
export function nextPage(cursor: string | null): { headers?: Record<string, string> } {
  return cursor === null ? {} : { headers: { "x-next-cursor": cursor } };
}

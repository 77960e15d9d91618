// What a route is.

import type * as z from "zod";
import type { ErrorCode } from "../errors.ts";
import type { Scope } from "./daemon.ts";

/** What is not JSON; "upgrade": the connection speaks something else from then on; "any": what a server in the guest answers, with its own status */
export type Body = "text" | "bytes" | "events" | "empty" | "upgrade" | "any";

export type Route = {
  /** "ALL": every one there is */
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "ALL";
  /** with a `*` at its end, any path below it */
  path: string;
  /** what a token needs; "none": nobody is asked who they are */
  scope: Scope | "none";
  summary: string;
  params?: z.ZodObject;
  query?: z.ZodType;
  body?: z.ZodType | "bytes";
  responses: Record<number, z.ZodType | Body>;
  /** what the data of its events is, where an answer is "events" */
  events?: z.ZodType;
  /** of "bytes", in both directions; without it application/octet-stream */
  media?: string;
  /** long work: with Accept: application/x-ndjson, progress comes line by line before the result */
  progress?: true;
  /** where clients of the older API expect another status than that of the code */
  statusOf?: Partial<Record<ErrorCode, number>>;
};

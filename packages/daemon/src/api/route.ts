// A route of the API: method, path, scope, schemas.

import type * as z from "zod";
import type { ErrorCode } from "@forkd/runtime/errors";
import type { Scope } from "./common.ts";

/** A body that is not JSON. "upgrade": the connection changes its protocol; "any": the answer of a server in the guest, with its own status */
export type Body = "text" | "bytes" | "events" | "empty" | "upgrade" | "any";

export type Route = {
  /** "ALL": every method */
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "ALL";
  /** a `*` at the end stands for any path below */
  path: string;
  /** the scope that a token needs; "none": no token is needed */
  scope: Scope | "none";
  summary: string;
  params?: z.ZodObject;
  query?: z.ZodType;
  body?: z.ZodType | "bytes";
  responses: Record<number, z.ZodType | Body>;
  /** schema of the events' data, if an answer is "events" */
  events?: z.ZodType;
  /** media type of "bytes", in both directions; the default is application/octet-stream */
  media?: string;
  /** with Accept: application/x-ndjson, lines of progress precede the result */
  progress?: true;
  /** a list that an operator may ask for across all projects, with the header `X-Forkd-Project: *` */
  acrossProjects?: true;
  /** codes for which clients of the older API expect another status */
  statusOf?: Partial<Record<ErrorCode, number>>;
};

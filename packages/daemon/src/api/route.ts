// What a route is.

import type * as z from "zod";
import type { ErrorCode } from "../errors.ts";
import type { Scope } from "./daemon.ts";

/** What is not JSON */
export type Body = "text" | "bytes" | "events" | "empty";

export type Route = {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  /** what a token needs; "none": nobody is asked who they are */
  scope: Scope | "none";
  summary: string;
  params?: z.ZodObject;
  query?: z.ZodType;
  body?: z.ZodType | "bytes";
  responses: Record<number, z.ZodType | Body>;
  /** of "events" that are not the journal's */
  events?: z.ZodType;
  /** of "bytes", in both directions; without it application/octet-stream */
  media?: string;
  /** long work: with Accept: application/x-ndjson, progress comes line by line before the result */
  progress?: true;
  /** where clients of the older API expect another status than that of the code */
  statusOf?: Partial<Record<ErrorCode, number>>;
};

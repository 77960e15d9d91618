// Sends answers: JSON, streams, and progress line by line.

import { Readable } from "node:stream";
import type { OutgoingHttpHeaders } from "node:http";
import type { FastifyReply } from "fastify";
import type { Problem } from "../api/common.ts";
import type { Progress } from "../util/progress.ts";
import { PAGE_HEADERS, pageOf } from "./proxy/page.ts";
import type { AnyAnswer, Passage } from "./handler.ts";
import type { ErrorAnswer } from "./problem.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const PROBLEM_TRAILER = "x-forkd-problem";
const LINES_TYPE = "application/x-ndjson";
/** A client that reads slower than this misses steps, never the result */
const MAX_WAITING_BYTES = 64 * 1024;

/** `describe` tells an error that comes after the answer has begun */
export function send(reply: FastifyReply, answer: AnyAnswer, describe: (error: unknown) => Problem): FastifyReply {
  reply.code(answer.status);
  if (answer.headers) reply.headers(answer.headers);
  const { body } = answer;
  if (body instanceof Readable) return sendStream(reply, body, answer.flush === true, describe);
  if (body === undefined || body === null) return reply.send();
  if (typeof body === "string" || Buffer.isBuffer(body)) return reply.send(body);
  return reply.header("content-type", JSON_TYPE).send(JSON.stringify(body));
}

export function sendError(reply: FastifyReply, answer: ErrorAnswer): FastifyReply {
  return reply.code(answer.status).headers(answer.headers).header("content-type", JSON_TYPE).send(JSON.stringify(answer.problem));
}

/** The same for people */
export function sendPage(reply: FastifyReply, answer: ErrorAnswer): FastifyReply {
  return reply
    .code(answer.status)
    .headers({ ...answer.headers, ...PAGE_HEADERS })
    .send(pageOf(answer.problem));
}

/** An answer that comes from elsewhere: from its head on it is no longer Fastify's */
export async function sendPassage(reply: FastifyReply, status: number, passage: Passage): Promise<FastifyReply> {
  reply.code(status);
  const out = passage(reply.raw, reply.getHeaders());
  if (reply.raw.headersSent) reply.hijack();
  await out;
  return reply;
}

export function wantsLines(accept: string | undefined): boolean {
  return accept !== undefined && accept.toLowerCase().includes(LINES_TYPE);
}

/** The status is sent with the first line: an error before that is an ordinary answer, one after it is the last line */
export async function sendLines(
  reply: FastifyReply,
  work: (progress: Progress) => Promise<AnyAnswer>,
  describe: (error: unknown) => Problem,
): Promise<FastifyReply> {
  const stream = new Readable({ read: () => undefined });
  let hasBegun = false;
  const push = (line: object): void => {
    if (!hasBegun) {
      hasBegun = true;
      reply.code(200).header("content-type", LINES_TYPE).send(stream);
    }
    if (!stream.destroyed) stream.push(`${JSON.stringify(line)}\n`);
  };
  try {
    const answer = await work((progress) => {
      if (stream.readableLength < MAX_WAITING_BYTES) push({ progress });
    });
    if (!hasBegun && answer.headers) reply.headers(answer.headers);
    push({ result: answer.body ?? null, status: answer.status });
  } catch (error) {
    if (!hasBegun) throw error;
    push({ error: describe(error) });
  }
  if (!stream.destroyed) stream.push(null);
  return reply;
}

function sendStream(reply: FastifyReply, stream: Readable, flush: boolean, describe: (error: unknown) => Problem): FastifyReply {
  if (reply.request.method === "HEAD") {
    stream.destroy();
    return reply.send();
  }
  if (/\btrailers\b/i.test(String(reply.request.headers.te))) return sendWithTrailer(reply, stream, describe);
  reply.send(stream);
  if (flush) reply.raw.flushHeaders();
  return reply;
}

/** For clients that understand it: a stream that breaks says why, behind what was sent. For others the connection breaks with it */
function sendWithTrailer(reply: FastifyReply, stream: Readable, describe: (error: unknown) => Problem): FastifyReply {
  // what has trailers says its length by ending
  reply.removeHeader("content-length");
  const { raw } = reply.hijack();
  raw.writeHead(reply.statusCode, { ...(reply.getHeaders() as OutgoingHttpHeaders), trailer: PROBLEM_TRAILER });
  raw.flushHeaders();
  stream.once("error", (error) => {
    if (raw.destroyed) return;
    raw.addTrailers({ [PROBLEM_TRAILER]: asciiJson(describe(error)) });
    raw.end();
  });
  raw.once("close", () => stream.destroy());
  stream.pipe(raw);
  return reply;
}

/** A header holds no other characters */
function asciiJson(value: object): string {
  return JSON.stringify(value).replaceAll(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

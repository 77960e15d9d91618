// Connect stream envelopes: flags, length, JSON message.

import { ForkdError } from "@forkd/runtime/errors";

export const STREAM_TYPE = "application/connect+json";
const HEADER_BYTES = 5;
const END_FLAG = 0x02;
/** Rejected: the server announces no compression */
const COMPRESSED_FLAG = 0x01;

export function isStreamType(contentType: string | undefined): boolean {
  return contentType?.startsWith(STREAM_TYPE) === true;
}

export function envelope(message: object, flags = 0): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const whole = Buffer.alloc(HEADER_BYTES + body.length);
  whole.writeUInt8(flags, 0);
  whole.writeUInt32BE(body.length, 1);
  body.copy(whole, HEADER_BYTES);
  return whole;
}

/** End-of-stream envelope, with the error of a failed stream */
export function ending(error?: { code: string; message: string }): Buffer {
  return envelope(error ? { error } : {}, END_FLAG);
}

/** The single message of a request */
export function unwrapped(bytes: Buffer): Buffer {
  if (bytes.length < HEADER_BYTES || bytes.readUInt32BE(1) !== bytes.length - HEADER_BYTES)
    throw new ForkdError("BAD_REQUEST", "Cannot read the request: it is not one whole envelope.");
  if ((bytes.readUInt8(0) & COMPRESSED_FLAG) !== 0) throw new ForkdError("BAD_REQUEST", "Cannot read the request: it is compressed.");
  return bytes.subarray(HEADER_BYTES);
}

// envd: upload and download of files.

import { posix } from "node:path";
import { pipeline, Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { readPieces } from "../../streams/body.ts";
import { accountOf, pathFor } from "./accounts.ts";
import { statOf, writeFile } from "./guest-writes.ts";
import { metadataIn, type Metadata } from "./metadata.ts";
import { boundaryOf, readParts } from "./multipart.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { SandboxWork } from "../work.ts";

/** A browser must not render a guest's file with the API's origin */
const HEADERS = { "content-type": "application/octet-stream", "x-content-type-options": "nosniff" };

export async function download(work: SandboxWork): Promise<Answer> {
  const { call, sandbox, services, caller } = work;
  const path = pathFor(await accountOf(work), call.query.get("path") ?? "");
  const info = await statOf(work, path);
  if (!info) throw new ForkdError("FILE_NOT_FOUND", `path '${path}' does not exist`);
  if (info.kind === "directory") throw new ForkdError("BAD_REQUEST", `path '${path}' is a directory`);
  const iterator = (await services.manager.files.read(sandbox.id, { path }, caller))[Symbol.asyncIterator]();
  const first = await iterator.next();
  // the SDKs need Content-Length for an empty file
  if (first.done === true) return { status: 200, headers: { ...HEADERS, "content-length": "0" } };
  return { status: 200, headers: HEADERS, body: Readable.from(beginningWith(first.value, iterator), { objectMode: false }) };
}

export async function upload(work: SandboxWork): Promise<Answer> {
  const { call, request, services } = work;
  const metadata = metadataIn(request.headersDistinct);
  const account = await accountOf(work);
  const given = call.query.get("path") ?? "";
  const content = decoded(readPieces(request, services.limits), request.headers["content-encoding"]);
  const written: { name: string; type: "file"; path: string; metadata?: Metadata }[] = [];
  const write = async (name: string, pieces: AsyncIterable<Uint8Array>): Promise<void> => {
    if (name === "") throw new ForkdError("BAD_REQUEST", "Cannot write the file: path: is required.");
    const path = pathFor(account, name);
    await writeFile({ work, account, path, metadata }, pieces);
    const noted = Object.keys(metadata).length > 0 ? { metadata } : {};
    written.push({ name: posix.basename(path), type: "file", path, ...noted });
  };
  const boundary = boundaryOf(call.contentType);
  if (boundary !== null) {
    for await (const part of readParts(content, boundary)) {
      // other fields of a form are ignored
      if (part.name === "file") await write(given === "" ? (part.filename ?? "") : given, part.content);
    }
  } else if (call.contentType?.startsWith("application/octet-stream")) await write(given, content);
  else throw new ForkdError("UNSUPPORTED_MEDIA_TYPE", "Cannot write files: it takes multipart/form-data or application/octet-stream.");
  return { status: 200, body: written };
}

function decoded(content: AsyncIterable<Uint8Array>, encoding: string | undefined): AsyncIterable<Uint8Array> {
  if (encoding === undefined || encoding === "identity") return content;
  if (encoding !== "gzip") throw new ForkdError("UNSUPPORTED_MEDIA_TYPE", "Cannot write files: Content-Encoding: must be gzip.");
  const unpacked = createGunzip();
  // the reader of the stream gets the error
  pipeline(content, unpacked, () => undefined);
  return unzipped(unpacked);
}

async function* unzipped(unpacked: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* unpacked;
  } catch (error) {
    if (!String((error as NodeJS.ErrnoException).code).startsWith("Z_")) throw error;
    throw new ForkdError("BAD_REQUEST", `Cannot unpack the content: ${messageOf(error)}.`, { cause: error });
  }
}

async function* beginningWith(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  try {
    yield first;
    for (let step = await rest.next(); step.done !== true; step = await rest.next()) yield step.value;
  } finally {
    await rest.return?.();
  }
}

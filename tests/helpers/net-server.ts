// Servers of the test network: HTTP on ports 80 and 8080, echo on 7, one that never reads on 9, DNS on 127.0.0.1:5353.
// Usage: net-server.ts web[,names] FOLDER, with an IPC channel to the test

import { createSocket } from "node:dgram";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer as createWeb, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer, type Socket } from "node:net";
import { join, normalize } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

/** name → type → lists of addresses. Each query gets the next list; the last list repeats */
export type Records = Record<string, { A?: string[][]; AAAA?: string[][]; TXT?: string }>;
export type ToServer = { kind: "records"; records: Records };
export type FromServer =
  | { kind: "ready" }
  | { kind: "hit"; address: string; port: number; from: string }
  | { kind: "asked"; name: string; type: number };

const A = 1;
const TXT = 16;
const AAAA = 28;
const NXDOMAIN = 3;
const CHUNK = Buffer.alloc(65536, "forkd");

const [, , roles = "", folder = "/"] = process.argv;
const tell = (message: FromServer): void => void process.send?.(message);
let records: Records = {};

function hit(socket: Socket): void {
  socket.on("error", () => undefined); // the tests reset connections
  tell({
    kind: "hit",
    address: (socket.localAddress ?? "").replace("::ffff:", ""),
    port: socket.localPort ?? 0,
    from: socket.remoteAddress ?? "",
  });
}

async function listen(port: number, handle: (socket: Socket) => void): Promise<void> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    hit(socket);
    handle(socket);
  });
  await new Promise<void>((resolve) => server.listen(port, "::", resolve));
}

async function web(port: number): Promise<void> {
  const server = createWeb((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  server.on("connection", hit);
  await new Promise<void>((resolve) => server.listen(port, "::", resolve));
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://server");
  if (pathname === "/hello") return void response.end("hello\n");
  if (pathname === "/big") return pipeline(Readable.from(chunks(Number(searchParams.get("bytes")))), response);
  if (pathname === "/upload") {
    let bytes = 0;
    for await (const chunk of request) bytes += (chunk as Buffer).length;
    return void response.end(String(bytes));
  }
  const file = join(folder, normalize(decodeURIComponent(pathname)), pathname.endsWith("/") ? "index.html" : "");
  const found = await stat(file).catch(() => undefined);
  if (!found?.isFile()) return void response.writeHead(404).end();
  response.setHeader("content-length", found.size);
  if (file.endsWith(".html")) response.setHeader("content-type", "text/html");
  return pipeline(createReadStream(file), response);
}

function* chunks(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= CHUNK.length) yield CHUNK.subarray(0, Math.min(left, CHUNK.length));
}

/** Implements only the part of DNS that a resolver needs */
function reply(query: Buffer): Buffer {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const name = labels.join(".").toLowerCase();
  const type = query.readUInt16BE(at + 1);
  tell({ kind: "asked", name, type });
  const known = Object.hasOwn(records, name) ? records[name] : undefined;
  const lists = type === A ? known?.A : type === AAAA ? known?.AAAA : undefined;
  const addresses = (lists && lists.length > 1 ? lists.shift() : lists?.[0]) ?? [];
  const data = [...addresses.map(bytesOf), ...(type === TXT && known?.TXT ? [Buffer.from(`\x01${known.TXT}`)] : [])];
  if (type === TXT && data[0]) data[0][0] = data[0].length - 1;
  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  header.writeUInt16BE(0x8180 | (known ? 0 : NXDOMAIN), 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(data.length, 6);
  const answers = data.map((bytes) => {
    const head = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 1, 0, bytes.length]);
    return Buffer.concat([head, bytes]);
  });
  return Buffer.concat([header, query.subarray(12, at + 5), ...answers]);
}

function bytesOf(address: string): Buffer {
  if (!address.includes(":")) return Buffer.from(address.split(".").map(Number));
  const [head = "", tail = ""] = address.split("::");
  const groups = (text: string): string[] => text.split(":").filter(Boolean);
  const middle = Array.from({ length: 8 - groups(head).length - groups(tail).length }, () => "0");
  return Buffer.from([...groups(head), ...middle, ...groups(tail)].map((group) => group.padStart(4, "0")).join(""), "hex");
}

process.on("message", (message: ToServer) => {
  records = message.records;
  tell({ kind: "ready" });
});
process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));

await web(80);
await web(8080);
await listen(443, (socket) => socket.pipe(socket));
await listen(7, (socket) => socket.pipe(socket));
await listen(9, (socket) => socket.pause());
if (roles.includes("names")) {
  const udp = createSocket("udp4");
  udp.on("message", (query, from) => udp.send(reply(query), from.port, from.address));
  await new Promise<void>((resolve) => udp.bind(5353, "127.0.0.1", resolve));
}
tell({ kind: "ready" });

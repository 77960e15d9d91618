// A gateway in this process, and requests to it.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLog } from "@forkd/daemon/observe/log";
import { gatewayOptions } from "../../src/options.ts";
import { startGateway, type Gateway } from "../../src/gateway.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { KEY } from "./fake-node.ts";
import type { TestContext } from "node:test";

export const ADMIN = "an-admin-token-of-the-file";

export type Reply = { status: number; headers: IncomingHttpHeaders; text: string; body: never };
type Ask = { method?: string; token?: string | null; headers?: Record<string, string>; body?: unknown };

export type Fixture = {
  gateway: Gateway;
  dir: string;
  port: number;
  ask: (path: string, ask?: Ask) => Promise<Reply>;
  open: (path: string, ask?: Ask) => Promise<IncomingMessage>;
};

async function tempDir(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-gateway-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

export async function serve(
  t: TestContext,
  nodes: { url: string }[],
  opts: { dir?: string; random?: () => number; pendingMs?: number } = {},
): Promise<Fixture> {
  const dir = opts.dir ?? (await tempDir(t));
  const keyFile = join(dir, "key");
  const tokenFile = join(dir, "token");
  await writeFile(keyFile, KEY, { mode: 0o600 });
  await writeFile(tokenFile, ADMIN, { mode: 0o600 });
  const options = gatewayOptions({
    nodes: nodes.map(({ url }) => url).join(","),
    bind: "127.0.0.1:0",
    state: join(dir, "state"),
    clusterKeyFile: keyFile,
    tokenFile,
    drainSecs: 0,
  });
  const gateway = await startGateway(options, {
    log: createLog("silent"),
    ...(opts.random ? { random: opts.random } : {}),
    ...(opts.pendingMs === undefined ? {} : { pendingMs: opts.pendingMs }),
  });
  t.after(async () => gateway.stop());
  const port = Number(gateway.bind.split(":")[1]);
  const open = async (path: string, ask: Ask = {}): Promise<IncomingMessage> => {
    const { token = ADMIN, body } = ask;
    const bytes = body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const outgoing = httpRequest(
        {
          host: "127.0.0.1",
          port,
          path,
          agent: false,
          method: ask.method ?? (body === undefined ? "GET" : "POST"),
          headers: {
            ...(token === null ? {} : { authorization: `Bearer ${token}` }),
            ...(bytes === undefined ? {} : { "content-type": "application/json" }),
            ...ask.headers,
          },
        },
        resolve,
      );
      outgoing.once("error", reject);
      outgoing.end(bytes);
    });
  };
  const ask = async (path: string, given?: Ask): Promise<Reply> => {
    const response = await open(path, given);
    const pieces: Buffer[] = [];
    for await (const piece of response) pieces.push(piece as Buffer);
    const text = Buffer.concat(pieces).toString();
    const isJson = response.headers["content-type"]?.startsWith("application/json") === true;
    return { status: response.statusCode ?? 0, headers: response.headers, text, body: (isJson ? JSON.parse(text) : text) as never };
  };
  return { gateway, dir, port, ask, open };
}

export async function until(check: () => boolean | Promise<boolean>, withinMs = patience()): Promise<void> {
  const end = Date.now() + withinMs;
  while (!(await check())) {
    if (Date.now() > end) throw new Error("it did not happen in time");
    await new Promise((resolve) => void setTimeout(resolve, 10));
  }
}

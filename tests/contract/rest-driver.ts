// Contract driver for plain HTTP requests over the Unix socket or TCP.

import assert from "node:assert/strict";
import { json } from "node:stream/consumers";
import { encodeHeader, endOfTar, paddingOf, rootHeader } from "@forkd/runtime/archive/tar-write";
import { routes, type RouteName } from "../../packages/daemon/src/api/routes.ts";
import { eventsIn, SpecClient, type Problem } from "../helpers/spec-client.ts";
import type { TestDaemon } from "../helpers/daemon.ts";
import type { Args, Driver, Outcome } from "./case.ts";

export function restDriver(daemon: TestDaemon): Driver {
  return { name: "rest", call: async (route, args) => callBy(clientFor(daemon, args), route, args) };
}

function clientFor(daemon: TestDaemon, { token }: Args): SpecClient {
  if (token === undefined) return new SpecClient({ socketPath: daemon.socket });
  const [host = "", port] = (daemon.bind ?? "").split(":");
  return new SpecClient({ host, port: Number(port) }, token === "" ? {} : { token });
}

export async function callBy(client: SpecClient, route: RouteName, args: Args): Promise<Outcome> {
  if (route === "getEvents") return takeEvents(client.events(queryOf(args), args.headers), args);
  if (route === "watchFiles") return watch(client, args);
  if (route === "connectPort") return client.upgrade(pathOf(route, args), { upgrade: "tcp", bytes: args.bytes ?? Buffer.alloc(0) });
  // the REST API takes a recipe as an archive
  if (route === "buildRecipe" && args.bytes === undefined) return callBy(client, route, archived(args));
  const { method: declared } = routes[route];
  const method = declared === "ALL" ? (args.bytes === undefined ? "GET" : "POST") : declared;
  const { status, body, bytes, headers } = await client.send(method, pathOf(route, args), {
    ...(args.body === undefined ? {} : { json: args.body }),
    ...(args.bytes === undefined ? {} : { bytes: args.bytes }),
    ...(args.headers === undefined ? {} : { headers: args.headers }),
  });
  const { code, error, details } = (body ?? {}) as Partial<Problem>;
  if (status >= 400 && code !== undefined && error !== undefined) {
    return { code, message: error, status, details };
  }
  if (route === "evalStream") return { value: evalIn(bytes), status };
  if (route === "watchProcess") return { value: processIn(bytes), status };
  const isBinary = /^application\/(octet-stream|x-tar|vnd\.forkd\.pack)$/.test(headers["content-type"] ?? "");
  const value = body ?? (isBinary ? bytes : bytes.length === 0 && status !== 200 ? null : bytes.toString());
  return { value, status, next: (headers["x-next-cursor"] as string | undefined) ?? null };
}

/** An archive with the recipe file, or an empty body */
function archived({ body, ...rest }: Args): Args {
  const source = body?.["source"] as string | undefined;
  if (source === undefined) return { ...rest, bytes: Buffer.alloc(0) };
  const data = Buffer.from(source);
  const header = encodeHeader(rootHeader({ path: "recipe.yaml", type: "file", mode: 0o644, size: data.length }));
  return { ...rest, bytes: Buffer.concat([header, data, paddingOf(data.length), endOfTar()]) };
}

/** Output and exit of a process, from its events */
function processIn(bytes: Buffer): unknown {
  const seen: Record<string, unknown> = { stdout: "", stderr: "" };
  for (const { event, data } of eventsIn(bytes)) {
    if (event === "stdout" || event === "stderr") seen[event] = String(seen[event]) + String(data["text"]);
    else if (event === "exit") Object.assign(seen, data);
  }
  return seen;
}

/** The eval result that its events add up to */
function evalIn(bytes: Buffer): unknown {
  const seen: Record<string, unknown> & { results: unknown[] } = { stdout: "", stderr: "", results: [] };
  for (const { event, data } of eventsIn(bytes)) {
    if (event === "stdout" || event === "stderr") seen[event] = String(seen[event]) + String(data["text"]);
    else if (event === "result") seen.results.push(data);
    else Object.assign(seen, data);
  }
  return seen;
}

async function takeEvents(stream: AsyncIterable<unknown>, { take = 1 }: Args): Promise<Outcome> {
  const events: unknown[] = [];
  for await (const event of stream) if (events.push(event) >= take) break;
  return { value: events, status: 200 };
}

/** Changes after the initial `ready` event */
async function watch(client: SpecClient, args: Args): Promise<Outcome> {
  const response = await client.open("GET", pathOf("watchFiles", args));
  if (response.statusCode !== 200) {
    const { code, error, details } = (await json(response)) as Problem;
    return { code, message: error, status: response.statusCode ?? 0, details };
  }
  const changes = client.eventsIn(response, "FileEvent");
  assert.deepEqual((await changes.next()).value, { type: "ready" });
  return takeEvents(changes, args);
}

function pathOf(route: RouteName, args: Args): string {
  const path = routes[route].path
    .replaceAll(/:(\w+)/g, (_, name: string) => encodeURIComponent(args.params?.[name] ?? ""))
    .replace("*", args.params?.["path"] ?? "");
  return path + queryOf(args);
}

function queryOf({ query = {} }: Args): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) for (const item of [value].flat()) search.append(name, String(item));
  return search.size === 0 ? "" : `?${search.toString()}`;
}

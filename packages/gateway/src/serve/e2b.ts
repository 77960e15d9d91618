// E2B front end of a gateway: the control API with tokens of the cluster, and sandboxes by their id and access tokens.

import { ForkdError } from "@forkd/runtime/errors";
import { authenticate, bearerOf } from "@forkd/daemon/dispatch/auth";
import { forkdId } from "@forkd/daemon/dispatch/e2b-id";
import { Router, type Found } from "@forkd/daemon/dispatch/router";
import { controlRoutes } from "@forkd/daemon/e2b/control/routes";
import { refusal } from "@forkd/daemon/e2b/errors";
import { tagOf } from "@forkd/daemon/e2b/templates/templates";
import { readJson } from "@forkd/daemon/streams/body";
import { askerOf, type Asked, type Cluster } from "./cluster.ts";
import { placeFork } from "./fork.ts";
import { pass } from "./forward.ts";
import { rendezvous } from "./keyed.ts";
import { distinct, merged, mergedPage } from "./merge.ts";
import { holdersOf } from "./tags.ts";
import type { Scope } from "@forkd/daemon/api/common";
import type { Exchange } from "@forkd/daemon/dispatch/exchange";
import type { FrontEnd, Work } from "@forkd/daemon/dispatch/front-end";
import type { ControlCall, SandboxCall } from "@forkd/daemon/dispatch/target";
import type { Node } from "../nodes/node.ts";

const LABEL = "/e2b";
/** Default of both API versions */
const PAGE = 100;

type Known = { path: string; scope: Scope; byAddress?: true };
type Listed = { sandboxID: string; startedAt: string };
type Calling = Asked & { call: ControlCall };

export function e2bFrontEnd(cluster: Cluster): FrontEnd<"e2b"> {
  const router = new Router<Known>();
  for (const route of controlRoutes) router.add(route.method, route.path, route);
  return {
    mayUpgrade: ({ call }) => call.plane === "sandbox" && call.id !== null,
    open: (exchange, { call }) =>
      call.plane === "control" ? openControl(router, cluster, exchange, call) : openSandbox(cluster, exchange, call),
  };
}

function openControl(router: Router<Known>, cluster: Cluster, exchange: Exchange, call: ControlCall): Work {
  const { request, method, transport } = exchange;
  let found: Found<Known> | null = null;
  let malformed: ForkdError | undefined;
  try {
    found = router.find(method, call.path);
  } catch (error) {
    // handled below, so that the response has the form of E2B's errors
    if (!(error instanceof ForkdError)) throw error;
    malformed = error;
  }
  return {
    label: LABEL,
    path: call.path,
    snapshot: null,
    isProbe: false,
    sandbox: () => (found?.route.path.includes("/sandboxes/:id") ? forkdId(found.params["id"] ?? "") : null),
    admit: () => {
      if (malformed) throw malformed;
      // the node checks the token in the URL
      if (found?.route.byAddress) return { identity: null, scope: null };
      const key = request.headers["x-api-key"];
      const token = typeof key === "string" && key !== "" ? key : bearerOf(request.headers.authorization);
      const identity = authenticate({ kind: transport.kind, remote: exchange.remote, token }, cluster);
      return { identity, scope: found?.route.scope ?? "read" };
    },
    serve: async () => {
      if (!found) throw new ForkdError("NOT_FOUND", `Cannot ${method} ${call.path}: forkd does not implement this path of E2B's API.`);
      await serveControl(found, { exchange, cluster, call, params: found.params, search: call.query.toString() });
    },
    refuse: (error) => refusal(call, null, error),
  };
}

async function serveControl({ route }: Found<Known>, calling: Calling): Promise<void> {
  const { exchange, cluster, call, params } = calling;
  const path = route.path.replace(/^\/v[23]/, "");
  const { method } = exchange;
  if (path === "/sandboxes" && method === "POST") return create(calling);
  if (path === "/sandboxes") return list(calling);
  if (path === "/sandboxes/metrics") return merged(calling, joinObjects);
  if (path.startsWith("/sandboxes/:id")) {
    const node = await cluster.places.ofSandbox(forkdId(params["id"] ?? ""), askerOf(exchange));
    return pass(exchange, cluster, node);
  }
  if (path === "/templates" && method === "GET") return merged(calling, unique("templateID"));
  if (path === "/snapshots") return merged(calling, unique("snapshotID"));
  if (path === "/templates/aliases/:alias") return pass(exchange, cluster, await nodeOfTemplate(calling, params["alias"] ?? ""));
  if (path.startsWith("/templates/:id")) return pass(exchange, cluster, await nodeOfTemplate(calling, params["id"] ?? ""));
  if (path === "/templates" || path === "/templates/tags") {
    const body = await bodyOf(calling);
    const name = [body["name"], body["alias"], body["target"]].find((value) => typeof value === "string");
    const node = await nodeOfTemplate(calling, name ?? "");
    return pass(exchange, cluster, node, { body: Buffer.from(JSON.stringify(body)) });
  }
  // a feature that forkd lacks: any node says so
  return pass(exchange, cluster, cluster.places.any(), { path: exchange.request.url ?? call.path });
}

async function create(calling: Calling): Promise<void> {
  const body = await bodyOf(calling);
  const { exchange, cluster } = calling;
  const template = body["templateID"];
  const bytes = Buffer.from(JSON.stringify(body));
  if (typeof template !== "string") return pass(exchange, cluster, cluster.places.any(), { body: bytes });
  const tag = tagOf(template);
  const holders = await holdersOf(cluster, tag, askerOf(exchange));
  // one of E2B's own templates, which a node builds on first use
  if (holders.length === 0) return pass(exchange, cluster, await nodeOfTemplate(calling, template), { body: bytes });
  return placeFork(calling, { tag, count: 1, isolation: "any", body: bytes });
}

async function list(calling: Calling): Promise<void> {
  const { call } = calling;
  const isPaged = call.path.startsWith("/v2/");
  const limit = isPaged ? (call.query.get("limit") ?? String(PAGE)) : null;
  await mergedPage<Listed>(calling, {
    limit: limit === null ? null : String(Math.min(Number(limit), PAGE)),
    header: "x-next-token",
    keyOf: ({ startedAt, sandboxID }) => `${String(Date.parse(startedAt)).padStart(15, "0")}__${forkdId(sandboxID)}`,
    idOf: ({ sandboxID }) => sandboxID,
    isDescending: call.query.get("order") !== "asc",
  });
}

/** A template's builds, files and tags are on one node: its holder, or the one chosen by its name */
async function nodeOfTemplate({ exchange, cluster }: Calling, name: string): Promise<Node> {
  const [plain = name] = name.split(":");
  const [holder] = plain === "" ? [] : await holdersOf(cluster, plain, askerOf(exchange)).catch(refusedName);
  return holder ?? cluster.places.reachable(rendezvous(plain, cluster.nodes.open));
}

/** A name that no snapshot can have: the node refuses it */
function refusedName(error: unknown): Node[] {
  if (error instanceof ForkdError && error.code === "BAD_NAME") return [];
  throw error;
}

function openSandbox(cluster: Cluster, exchange: Exchange, call: SandboxCall): Work {
  return {
    label: LABEL,
    path: call.path,
    snapshot: null,
    isProbe: false,
    sandbox: () => call.id,
    // the node checks the access token
    admit: () => ({ identity: null, scope: null }),
    serve: async () => pass(exchange, cluster, await nodeOfCall(cluster, exchange, call), { drops: () => false }),
    refuse: (error) => refusal(call, call.id, error),
  };
}

/** Without an id the access token says which sandbox is meant, and only its node knows the token */
async function nodeOfCall(cluster: Cluster, exchange: Exchange, call: SandboxCall): Promise<Node> {
  const { headers } = exchange.request;
  if (call.id !== null) return cluster.places.ofSandbox(call.id, askerOf(exchange));
  const names = ["x-access-token", "e2b-traffic-access-token"];
  const given = names.flatMap((name) => (typeof headers[name] === "string" ? [[name, headers[name]] as const] : []));
  if (given.length === 0)
    throw new ForkdError("UNAUTHORIZED", "Cannot identify the sandbox: E2b-Sandbox-Id or its access token is needed.");
  const asked = cluster.nodes.up.map(async (node) => {
    const { status } = await node.ask("GET", "/health", { as: askerOf(exchange), headers: Object.fromEntries(given) });
    return status < 300 ? node : undefined;
  });
  const found = (await Promise.allSettled(asked)).flatMap((result) =>
    result.status === "fulfilled" && result.value ? [result.value] : [],
  );
  const [node] = found;
  if (!node) throw new ForkdError("UNAUTHORIZED", "Cannot identify the sandbox: no node knows the access token.");
  return node;
}

function joinObjects(given: { body: unknown }[]): unknown {
  const sandboxes = given.map(({ body }) => (body as { sandboxes?: object }).sandboxes ?? {});
  return { sandboxes: Object.assign({}, ...sandboxes) as object };
}

function unique(key: string): (given: { body: unknown }[]) => unknown {
  return (given) =>
    distinct(
      given.flatMap(({ body }) => body as Record<string, unknown>[]),
      (item) => String(item[key]),
    );
}

async function bodyOf({ exchange, cluster }: Calling): Promise<Record<string, unknown>> {
  const value = (await readJson(exchange.request, cluster.limits)) ?? {};
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new ForkdError("BAD_REQUEST", "Cannot accept the request: body: expected object.");
  return value as Record<string, unknown>;
}

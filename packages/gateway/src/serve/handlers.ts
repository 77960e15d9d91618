// How the gateway answers each route of the API: by itself, by one node, or by all.

import { createHash } from "node:crypto";
import { buildOpenapi } from "@forkd/daemon/api/openapi";
import { routes } from "@forkd/daemon/api/routes";
import { name, reference } from "@forkd/daemon/api/common";
import { parse } from "@forkd/daemon/dispatch/parse";
import { respond } from "@forkd/daemon/dispatch/respond";
import { storedName } from "@forkd/daemon/store/project-names";
import { ForkdError } from "@forkd/runtime/errors";
import { fullness } from "../placement/fullness.ts";
import { factsOf } from "../nodes/facts.ts";
import { gatewayIn } from "../nodes/signer.ts";
import { askerOf, ownerOf, projectOf, type Asked } from "./cluster.ts";
import { openEvents } from "./events.ts";
import { placeFork } from "./fork.ts";
import { attempt, pass, refuseWith } from "./forward.ts";
import { rendezvous } from "./keyed.ts";
import {
  askAndJoin,
  concatenated,
  distinct,
  joinGarbage,
  joinHistories,
  joinMetrics,
  joinStatuses,
  joinTrees,
  merged,
  mergedPage,
  sandboxKey,
} from "./merge.ts";
import { bodyOf, own, type Body, type Handler, type RestRoute } from "./handler.ts";
import { nodeHandlers } from "./node-handlers.ts";
import { projectHandlers } from "./project-handlers.ts";
import { tokenHandlers } from "./token-handlers.ts";
import { uiHandlers } from "./ui.ts";
import { exists, holdersOf, registeredNode, registerTag, unregisterTag } from "./tags.ts";
import type { NodeFacts } from "../placement/facts.ts";
import type { Node } from "../nodes/node.ts";
import type { Use } from "../nodes/uses.ts";
import type { SandboxInfo } from "@forkd/daemon/api/sandbox";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";

/** Branches, transfers and forks of many children take long */
const SLOW_MS = 600_000;

/** Codes of a node's refusal after which the tag stays registered: it is taken, or the request is under way */
const TAG_STAYS = new Set(["EXISTS", "IDEMPOTENCY_MISMATCH", "OUTCOME_UNKNOWN"]);

const bySandbox: Handler = async (asked) => {
  const { exchange, cluster, params } = asked;
  await pass(exchange, cluster, await cluster.places.ofSandbox(params["id"] ?? "", askerOf(exchange)));
};

const byWorkspace: Handler = async ({ exchange, cluster, params }) =>
  pass(exchange, cluster, await cluster.places.named("workspaces", params["name"] ?? "", askerOf(exchange)));

const byImage: Handler = async ({ exchange, cluster, params }) =>
  pass(exchange, cluster, await cluster.places.named("images", params["name"] ?? "", askerOf(exchange)));

const byTag: Handler = async ({ exchange, cluster, params }) => {
  const [holder] = await holdersOf(cluster, params["tag"] ?? "", askerOf(exchange));
  await pass(exchange, cluster, holder ?? cluster.places.any());
};

const anywhere: Handler = async ({ exchange, cluster }) => pass(exchange, cluster, pick({ exchange, cluster }, cluster.nodes.open));

function unsupported(what: string): Handler {
  return async () => {
    throw new ForkdError("UNSUPPORTED", `Cannot ${what} through a gateway: it belongs to one node.`, {
      hint: "Ask the node itself; docs/cluster.md lists what gateways do not serve.",
    });
  };
}

/** What the request adds counts against the quota of its project, over all nodes */
function limited(more: Partial<Use>, handler: Handler): Handler {
  return async (asked) => asked.cluster.quotas.run(projectOf(asked), more, async () => handler(asked));
}

const RESUMED = { sandboxes: 1, forks_per_minute: 1 };

/** Total map: a route without an entry is a type error */
export const handlers: Record<RestRoute, Handler> = {
  getHealth: own(() => ({ ok: true })),
  getReadiness: async ({ exchange, cluster }) => {
    const reason = cluster.stopping.aborted ? "stopping" : cluster.nodes.up.length === 0 ? "no node answers" : null;
    await respond(exchange, { status: reason === null ? 200 : 503, body: { ready: reason === null, reason } });
  },
  getVersion: own(({ cluster }) => ({ version: cluster.self.version, api: "v1" })),
  getMetrics: async (asked) => {
    const { cluster, exchange } = asked;
    const { metrics, transfers } = cluster;
    const own = { node: "gateway", text: await metrics.text() };
    const moved = `# HELP forkd_gateway_moved_bytes_total Bytes of packs moved between nodes\n# TYPE forkd_gateway_moved_bytes_total counter\nforkd_gateway_moved_bytes_total ${transfers.bytes}\n`;
    const answer = await askAndJoin<string>(asked, "/metrics", (given) =>
      joinMetrics([...given.map(({ node, body }) => ({ node: node.label, text: body })), own, { node: "gateway", text: moved }]),
    );
    await respond(exchange, { ...answer, headers: { ...answer.headers, "content-type": metrics.contentType } });
  },
  getOpenapi: own(() => buildOpenapi()),
  getStatus: async (asked) => merged(asked, (given) => joinStatuses(asked, given as Parameters<typeof joinStatuses>[1])),
  getConfig: own(({ cluster }) =>
    Object.fromEntries(Object.entries(cluster.self.settings).map(([name, value]) => [name, { value, source: "option" }])),
  ),
  stopDaemon: unsupported("stop a daemon"),
  collectGarbage: async (asked) => {
    const body = await bodyOf(asked);
    await merged(asked, joinGarbage as (given: unknown[]) => unknown, { body: bytesOf(body) });
  },
  getEvents: async (asked) => {
    const headers = { "content-type": "text/event-stream", "cache-control": "no-store" };
    await respond(asked.exchange, { status: 200, headers, body: openEvents(asked), flush: true });
  },
  getTree: async (asked) => merged(asked, joinTrees as (given: unknown[]) => unknown),
  getStats: async (asked) => merged(asked, concatenated as (given: unknown[]) => unknown),
  getHistory: async (asked) => merged(asked, joinHistories as (given: unknown[]) => unknown),

  ...tokenHandlers,
  ...projectHandlers,
  ...nodeHandlers,
  ...uiHandlers,

  listImages: async (asked) => merged(asked, unique("id")),
  createImage: async ({ exchange, cluster }) => pass(exchange, cluster, pick({ exchange, cluster }, cluster.nodes.open)),
  getImage: byImage,
  deleteImage: byImage,

  listSnapshots: async (asked) =>
    mergedPage<SnapshotInfo>(asked, {
      limit: new URLSearchParams(asked.search).get("limit"),
      header: "x-next-cursor",
      keyOf: ({ tag }) => tag,
      idOf: ({ id }) => id,
    }),
  createSnapshot: limited({ snapshots: 1 }, async (asked) => {
    const body = await bodyOf(asked);
    const image = typeof body["image"] === "string" ? body["image"] : undefined;
    const { nodes } = asked.cluster;
    const stored = image === undefined ? undefined : storedName(image, projectOf(asked));
    const has = ({ images }: Node): boolean =>
      image === undefined || stored === undefined ? images.size > 0 : images.has(image) || images.has(stored);
    const holders = nodes.open.filter(has);
    await makeTagged(asked, tagIn(body["tag"]), pick(asked, holders.length > 0 ? holders : nodes.open), body);
  }),
  getSnapshot: byTag,
  updateSnapshot: async (asked) => {
    const { cluster, exchange, params } = asked;
    const body = await bodyOf(asked);
    const tag = params["tag"] ?? "";
    const as = askerOf(exchange);
    const [first, ...others] = await holdersOf(cluster, tag, as);
    if (!first) {
      await pass(exchange, cluster, cluster.places.any(), { body: bytesOf(body) });
      return;
    }
    const to = tagIn(body["tag"]);
    const isRenamed = to !== undefined && to !== tag;
    if (isRenamed && (await registerTag(cluster, to, first, as))) throw exists(to);
    const refusal = await attempt(exchange, cluster, first, { body: bytesOf(body) });
    if (refusal) {
      if (isRenamed && !TAG_STAYS.has(refusal.problem.code)) await unregisterTag(cluster, to, as);
      await refuseWith(exchange, refusal);
      return;
    }
    if (isRenamed) await unregisterTag(cluster, tag, as);
    // copies get the same labels; one that fails keeps its old ones, and its next list shows it
    for (const node of others) await node.ask("PATCH", `/v1/snapshots/${encodeURIComponent(tag)}`, { as, body: bytesOf(body) });
  },
  deleteSnapshot: async (asked) => {
    const { cluster, exchange, params } = asked;
    const tag = params["tag"] ?? "";
    const as = askerOf(exchange);
    const [first, ...others] = await holdersOf(cluster, tag, as);
    const path = exchange.request.url ?? "/";
    for (const node of others) {
      const { status, body } = await node.ask("DELETE", path, { as });
      if (status >= 400 && status !== 404) {
        await respond(exchange, { status, body });
        return;
      }
    }
    const refusal = await attempt(exchange, cluster, first ?? cluster.places.any(), {});
    if (refusal) await refuseWith(exchange, refusal);
    else await unregisterTag(cluster, tag, as);
  },
  getSnapshotDetails: byTag,
  compactSnapshot: limited({ snapshots: 1 }, async (asked) => {
    const body = await bodyOf(asked);
    const { cluster, exchange, params } = asked;
    const [holder] = await holdersOf(cluster, params["tag"] ?? "", askerOf(exchange));
    await makeTagged(asked, tagIn(body["to"]), holder ?? cluster.places.any(), body);
  }),
  preparePack: byTag,
  readPack: byTag,
  unpack: limited({ snapshots: 1 }, async (asked) => {
    const { cluster, exchange } = asked;
    const tag = tagIn(new URLSearchParams(asked.search).get("tag") ?? undefined);
    const [holder] = tag === undefined ? [] : await holdersOf(cluster, tag, askerOf(exchange));
    await pass(exchange, cluster, holder ?? pick(asked, cluster.nodes.open));
  }),
  listKeys: unsupported("use keys"),
  createKey: unsupported("use keys"),
  getKey: unsupported("use keys"),
  deleteKey: unsupported("use keys"),
  pushSnapshot: byTag,
  pullSnapshot: limited({ snapshots: 1 }, async (asked) => {
    const body = await bodyOf(asked);
    const tag = tagIn(body["tag"]);
    const { cluster, exchange } = asked;
    const [holder] = tag === undefined ? [] : await holdersOf(cluster, tag, askerOf(exchange));
    await pass(exchange, cluster, holder ?? pick(asked, cluster.nodes.open), { body: bytesOf(body) });
  }),
  listHub: anywhere,
  listRecipes: async (asked) => merged(asked, unique("name")),
  checkRecipe: anywhere,
  buildRecipe: limited({ snapshots: 1, sandboxes: 1 }, async (asked) => {
    const { cluster, exchange, search } = asked;
    const query = new URLSearchParams(search);
    const tag = query.get("tag") ?? query.get("name") ?? "";
    const [holder] = tag === "" ? [] : await holdersOf(cluster, tag, askerOf(exchange));
    // by name, so that a build finds the layers of an earlier one
    await pass(exchange, cluster, holder ?? cluster.places.reachable(rendezvous(tag, cluster.nodes.open)));
  }),

  listSandboxes: async (asked) =>
    mergedPage<SandboxInfo>(asked, {
      limit: new URLSearchParams(asked.search).get("limit"),
      header: "x-next-cursor",
      keyOf: sandboxKey,
      idOf: ({ id }) => id,
    }),
  createSandboxes: async (asked) => {
    const body = await bodyOf(asked);
    // the node's own check, before nodes are chosen by these fields
    parse(routes.createSandboxes.body, body, "body");
    const tag = snapshotIn(body["snapshot_tag"]);
    if (tag === undefined) {
      await pass(asked.exchange, asked.cluster, asked.cluster.places.any(), { body: bytesOf(body) });
      return;
    }
    const wanted = tagIn(body["name"]);
    if (wanted !== undefined) await refuseTaken(asked, "sandboxes", wanted);
    const isPerItem = body["per_item"] === true;
    const bodyFor = (count: number): Buffer => bytesOf({ ...body, n: count });
    await placeFork(asked, {
      tag,
      count: typeof body["n"] === "number" ? body["n"] : 1,
      isolation: body["isolation"] === "kvm" ? "kvm" : "any",
      body: bytesOf(body),
      bodyFor: keyIn(asked) === undefined ? bodyFor : undefined,
      join: (parts) =>
        isPerItem
          ? { status: 207, body: { results: parts.flatMap((part) => (part as { results: unknown[] }).results) } }
          : { status: 201, body: parts.flat() },
      key: keyIn(asked),
    });
  },
  deleteSandboxes: async (asked) => merged(asked, concatenated as (given: unknown[]) => unknown),
  getSandbox: bySandbox,
  updateSandbox: async (asked) => {
    const body = await bodyOf(asked);
    const { exchange, cluster, params } = asked;
    const as = askerOf(exchange);
    const node = await cluster.places.ofSandbox(params["id"] ?? "", as);
    const wanted = tagIn(body["name"]);
    if (wanted !== undefined) {
      const other = await cluster.places.find("sandboxes", wanted, as);
      if (other && other !== node) throw taken("sandbox", wanted);
    }
    await pass(exchange, cluster, node, { body: bytesOf(body) });
  },
  deleteSandbox: bySandbox,
  pauseSandbox: bySandbox,
  suspendSandbox: limited({ suspended: 1 }, bySandbox),
  resumeSandbox: limited(RESUMED, bySandbox),
  getSandboxStats: bySandbox,
  getSandboxLogs: bySandbox,
  pingSandbox: bySandbox,
  execCommand: bySandbox,
  evalCode: bySandbox,
  evalStream: bySandbox,
  branchSandbox: limited({ snapshots: 1 }, async (asked) => {
    const body = await bodyOf(asked);
    await makeTagged(asked, tagIn(body["tag"]), await nodeOfSandbox(asked), body);
  }),
  forkSandbox: async (asked) => {
    const body = await bodyOf(asked);
    const count = typeof body["n"] === "number" ? body["n"] : 1;
    await asked.cluster.quotas.run(projectOf(asked), { snapshots: 1, sandboxes: count, forks_per_minute: count }, async () =>
      forkLive(asked, body),
    );
  },
  getNetwork: bySandbox,
  setNetwork: bySandbox,
  listContexts: bySandbox,
  createContext: bySandbox,
  deleteContext: bySandbox,
  restartContext: bySandbox,
  interruptContext: bySandbox,
  readFile: bySandbox,
  writeFile: bySandbox,
  removeFile: bySandbox,
  statFile: bySandbox,
  diskUsage: bySandbox,
  listFiles: bySandbox,
  makeDirectory: bySandbox,
  moveFile: bySandbox,
  copyFile: bySandbox,
  chmodFile: bySandbox,
  chownFile: bySandbox,
  makeSymlink: bySandbox,
  watchFiles: bySandbox,
  readTar: bySandbox,
  writeTar: bySandbox,
  startProcess: bySandbox,
  listProcesses: bySandbox,
  streamProcess: bySandbox,
  getProcess: bySandbox,
  killProcess: bySandbox,
  watchProcess: bySandbox,
  writeStdin: bySandbox,
  signalProcess: bySandbox,
  resizeProcess: bySandbox,
  listPorts: bySandbox,
  createPreview: bySandbox,
  connectPort: bySandbox,

  listWorkspaces: async (asked) => merged(asked, concatenated as (given: unknown[]) => unknown),
  createWorkspace: async (asked) => {
    const body = await bodyOf(asked);
    const tag = snapshotIn(body["snapshot_tag"]);
    const wanted = tagIn(body["name"]);
    const { exchange, cluster } = asked;
    if (tag === undefined || wanted === undefined) {
      await pass(exchange, cluster, cluster.places.any(), { body: bytesOf(body) });
      return;
    }
    // the node that has the name says that it is taken, or repeats its answer
    const owner = await cluster.places.find("workspaces", wanted, askerOf(exchange));
    if (owner) await pass(exchange, cluster, owner, { body: bytesOf(body) });
    else await placeFork(asked, { tag, count: 1, isolation: "any", body: bytesOf(body), key: keyIn(asked) });
  },
  getWorkspace: byWorkspace,
  deleteWorkspace: byWorkspace,
  suspendWorkspace: limited({ suspended: 1 }, byWorkspace),
  resumeWorkspace: limited(RESUMED, byWorkspace),
};

/** Fork of a live sandbox: on its node while there is room, else its branch moves to another node */
async function forkLive(asked: Asked, body: Body): Promise<void> {
  const { exchange, cluster } = asked;
  const node = await nodeOfSandbox(asked);
  const tag = tagIn(body["tag"]);
  const key = keyIn(asked);
  const as = askerOf(exchange);
  if (tag !== undefined && (await registerTag(cluster, tag, node, as))) throw exists(tag);
  // a repetition goes where the first request went
  const earlier = key === undefined ? undefined : cluster.keyed.known(ownerOf(asked), key);
  if (!earlier || earlier === node) {
    const refusal = await attempt(exchange, cluster, node, { body: bytesOf(body) });
    if (!refusal) return;
    if (refusal.problem.code !== "LIMIT_REACHED" || cluster.nodes.up.length < 2) {
      if (tag !== undefined && !TAG_STAYS.has(refusal.problem.code)) await unregisterTag(cluster, tag, as);
      await refuseWith(exchange, refusal);
      return;
    }
  }
  await forkElsewhere(asked, node, body, tag);
}

/** Branches on the full node, and forks the branch on another, to which it moves */
async function forkElsewhere(asked: Asked, source: Node, { tag: _tag, ...fields }: Body, tag: string | undefined): Promise<void> {
  const { exchange, cluster, params } = asked;
  const as = askerOf(exchange);
  const { signal } = exchange;
  const key = keyIn(asked);
  const headers = key === undefined ? {} : { "idempotency-key": `branch-${createHash("sha256").update(key).digest("hex")}` };
  const path = `/v1/sandboxes/${encodeURIComponent(params["id"] ?? "")}/branch`;
  const branched = await source.ask("POST", path, {
    as,
    body: bytesOf(tag === undefined ? {} : { tag }),
    headers,
    signal,
    timeoutMs: SLOW_MS,
  });
  if (branched.status >= 300) {
    await respond(exchange, { status: branched.status, body: branched.body });
    return;
  }
  const snapshot = branched.body as SnapshotInfo;
  try {
    await cluster.nodes.refresh(source);
    const sandboxes = await forkBranch(asked, snapshot, fields, source);
    await respond(exchange, { status: 201, body: { snapshot, sandboxes } });
  } catch (error) {
    // a failed request leaves no branch behind
    await source.ask("DELETE", `/v1/snapshots/${snapshot.id}?force=true`, { as: gatewayIn(projectOf(asked)) });
    if (tag !== undefined) await unregisterTag(cluster, tag, as);
    throw error;
  }
}

/** Tries the other nodes, those that have the base first and then the emptiest */
async function forkBranch(asked: Asked, snapshot: SnapshotInfo, fields: Body, source: Node): Promise<unknown> {
  const { cluster, exchange } = asked;
  const key = keyIn(asked);
  const count = typeof fields["n"] === "number" ? fields["n"] : 1;
  const base = snapshot.parent_tag === null ? undefined : source.tags.get(storedName(snapshot.parent_tag, snapshot.project));
  const lacksBase = ({ holds }: NodeFacts): number => (base !== undefined && holds.has(base) ? 0 : 1);
  const others = factsOf(cluster.nodes.open.filter((node) => node !== source))
    .filter(({ memory, places }) => memory.freeMiB >= count * snapshot.memory_mib && places.used + count <= places.max)
    .toSorted((x, y) => lacksBase(x) - lacksBase(y) || fullness(x) - fullness(y));
  let last: ForkdError | undefined;
  for (const { code } of others) {
    const node = cluster.nodes.byCode(code);
    if (!node) continue;
    const earlier = key === undefined ? undefined : cluster.keyed.known(ownerOf(asked), key);
    if (earlier && earlier !== source && earlier !== node) continue;
    if (key !== undefined) cluster.keyed.keep(ownerOf(asked), key, node);
    await cluster.transfers.move(snapshot.id, source, node);
    await cluster.quotas.refresh(projectOf(asked));
    const body = bytesOf({ ...fields, snapshot_tag: snapshot.id });
    const headers = key === undefined ? {} : { "idempotency-key": key };
    const reply = await node.ask("POST", "/v1/sandboxes", {
      as: askerOf(exchange),
      body,
      headers,
      signal: exchange.signal,
      timeoutMs: SLOW_MS,
    });
    if (reply.status < 300) return reply.body;
    if (key !== undefined) cluster.keyed.forget(ownerOf(asked), key);
    last = new ForkdError("LIMIT_REACHED", (reply.body as { error: string }).error);
  }
  throw last ?? new ForkdError("LIMIT_REACHED", `Cannot fork the sandbox: node ${source.label} is full, and so are the others.`);
}

/** Forwards a request that makes a snapshot under a tag, which the cluster has once */
async function makeTagged(asked: Asked, tag: string | undefined, wanted: Node, body: Body): Promise<void> {
  const { exchange, cluster, params } = asked;
  if (tag === undefined) {
    await pass(exchange, cluster, wanted, { body: bytesOf(body) });
    return;
  }
  const isNew = registeredNode(cluster.state, tag, askerOf(exchange)) === null;
  const owner = await registerTag(cluster, tag, wanted, askerOf(exchange));
  // of a live sandbox the snapshot can only be made on its node; else the owner says that it exists, or repeats its answer
  if (owner && params["id"] !== undefined) throw exists(tag);
  const refusal = await attempt(exchange, cluster, owner ?? wanted, { body: bytesOf(body) });
  if (!refusal) return;
  if (!owner && isNew && !TAG_STAYS.has(refusal.problem.code)) await unregisterTag(cluster, tag, askerOf(exchange));
  await refuseWith(exchange, refusal);
}

async function nodeOfSandbox({ exchange, cluster, params }: Asked): Promise<Node> {
  return cluster.places.ofSandbox(params["id"] ?? "", askerOf(exchange));
}

/** Of several nodes, that of the idempotency key, or the emptier of two random ones */
function pick(asked: Pick<Asked, "exchange" | "cluster">, among: readonly Node[]): Node {
  const { cluster } = asked;
  const key = keyIn(asked);
  if (key !== undefined) {
    const [chosen] = cluster.keyed.order(ownerOf(asked), key, among);
    if (chosen) cluster.keyed.keep(ownerOf(asked), key, chosen);
    return cluster.places.reachable(chosen);
  }
  const facts = factsOf(among);
  const draw = (): (typeof facts)[number] | undefined => facts[Math.floor(cluster.random() * facts.length)];
  const [one, other] = [draw(), draw()];
  if (!one || !other) throw cluster.nodes.noneAnswers();
  return cluster.places.reachable(cluster.nodes.byCode(fullness(other) < fullness(one) ? other.code : one.code));
}

async function refuseTaken({ cluster, exchange }: Asked, noun: "sandboxes", wanted: string): Promise<void> {
  // a repetition with an idempotency key gets the answer of the first request instead
  if (exchange.request.headers["idempotency-key"] !== undefined) return;
  if (await cluster.places.find(noun, wanted, askerOf(exchange))) throw taken("sandbox", wanted);
}

function taken(what: string, wanted: string): ForkdError {
  return new ForkdError("EXISTS", `Cannot name the ${what} ${wanted}: another one of the cluster has this name.`);
}

function keyIn({ exchange }: Pick<Asked, "exchange">): string | undefined {
  const key = exchange.request.headers["idempotency-key"];
  return typeof key === "string" ? key : undefined;
}

function unique(key: string): (given: { body: unknown }[]) => unknown {
  return (given) =>
    distinct(
      given.flatMap(({ body }) => body as Body[]),
      (item) => String(item[key]),
    );
}

function bytesOf(body: Body): Buffer {
  return Buffer.from(JSON.stringify(body));
}

/** undefined: absent, or not a name: then the node refuses it */
function tagIn(value: unknown): string | undefined {
  return name.safeParse(value).data;
}

/** The same for a snapshot to fork, which may be another project's */
function snapshotIn(value: unknown): string | undefined {
  return reference.safeParse(value).data;
}

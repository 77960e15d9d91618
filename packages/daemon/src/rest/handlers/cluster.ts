// REST handlers: this daemon as a cluster of one node, and its part in moves of sandboxes.

import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import type { ClusterNode, clusterRoutes, MoveStep } from "../../api/cluster.ts";
import type { Services } from "../../dispatch/services.ts";
import type { Caller } from "../../service/caller.ts";
import type { Departure } from "../../service/moves.ts";
import type { Access } from "../../store/moved-access.ts";
import type { Handlers } from "../handler.ts";

/** `maker`: the token that made it, which this node may not know */
type Sent = Departure & { access?: Access; maker?: Parameters<Services["tokens"]["noteOfCluster"]>[0] };

export const clusterHandlers: Pick<Handlers, keyof typeof clusterRoutes> = {
  getCluster: async (_input, { services, caller }) => {
    return { status: 200, body: { nodes: [await selfOf(services, caller)], moved: { snapshots: 0, bytes: 0 } } };
  },
  updateNode: async ({ params, body }, { services, caller }) => {
    const self = await selfOf(services, caller);
    checkSelf(self, params.node);
    if (body.cordoned === undefined) return { status: 200, body: self };
    services.manager.cordon(body.cordoned);
    return { status: 200, body: { ...self, cordoned: body.cordoned } };
  },
  drainNode: async ({ params }, { services, caller }) => {
    checkSelf(await selfOf(services, caller), params.node);
    throw new ForkdError("UNSUPPORTED", "Cannot drain a node without a gateway: it knows the other nodes.", {
      hint: "Ask a gateway of the cluster: docs/cluster.md.",
    });
  },
  moveSandbox: async ({ body }, { services, caller, isFromGateway }) => {
    if (!isFromGateway)
      throw new ForkdError("FORBIDDEN", "Cannot move a sandbox: only gateways of the cluster do.", {
        hint: "Run 'forkd cluster drain NODE' through a gateway.",
      });
    return { status: 200, body: await move(body, services, caller) };
  },
};

async function move({ step, id, to, record }: MoveStep, services: Services, caller: Caller): Promise<{ [field: string]: unknown }> {
  const { manager, movedAccess, accessTokens, previews } = services;
  const { moves } = manager;
  if (step === "depart") {
    const departure = await moves.depart(id, caller);
    const { sandbox } = departure;
    return { ...departure, ...(sandbox ? { access: { ...accessTokens.accessOf(sandbox), preview: previews.keyOf(id) } } : {}) };
  }
  if (step === "reserve") {
    const { access, maker, ...departure } = record as unknown as Sent;
    const has = await moves.reserve(departure);
    if (maker) services.tokens.noteOfCluster(maker);
    if (access) movedAccess.put(id, access);
    return { has };
  }
  if (step === "arrive") await moves.arrive(id);
  if (step === "leave") await moves.leave(id, to ?? "", caller);
  if (step === "claim") return { is_yours: moves.claim(id) };
  if (step === "pending") return { arriving: moves.arriving };
  if (step === "stay") await moves.stay(id);
  if (step === "drop") {
    movedAccess.delete(id);
    await moves.drop(id);
  }
  return step === "settle" ? moves.settle(id, caller) : {};
}

function checkSelf({ code }: ClusterNode, node: string): void {
  if (code !== node) throw notFound("node", node, [code ?? ""]);
}

async function selfOf({ manager }: Services, caller: Caller): Promise<ClusterNode> {
  const { node, version, accelerator, sandboxes, cordoned, limits, memory, disk, load } = await manager.status(caller);
  const { items } = await manager.snapshots.list({}, caller);
  return {
    code: node,
    url: null,
    state: "up",
    cordoned,
    problem: null,
    last_seen_unix: Math.floor(Date.now() / 1000),
    version,
    accelerator,
    sandboxes,
    max_sandboxes: limits.max_sandboxes,
    memory,
    disk_free_mib: disk.free_mib,
    load,
    snapshots: items.map(({ tag, id, pool }) => ({ tag, id, pool })),
  };
}

// The cluster: its nodes, and what they hold. A daemon without gateways is a cluster of one node.

import * as z from "zod";
import { unixSeconds } from "./common.ts";
import { sandboxState } from "./sandbox.ts";
import type { Route } from "./route.ts";

const clusterNode = z
  .strictObject({
    code: z.string().nullable().meta({ description: "Ids that it makes begin with it; null: it has not answered yet" }),
    url: z.string().nullable().meta({ description: "Address by which gateways reach it; null: the daemon that answers" }),
    state: z.enum(["up", "down"]),
    cordoned: z.boolean().meta({ description: "It takes no forks; its sandboxes continue" }),
    problem: z.string().nullable().meta({ description: "Why it is down" }),
    last_seen_unix: unixSeconds.nullable(),
    version: z.string().nullable(),
    accelerator: z.enum(["kvm", "tcg"]).nullable(),
    sandboxes: z.int(),
    max_sandboxes: z.int(),
    memory: z.strictObject({ committed_mib: z.int(), available_mib: z.int() }),
    disk_free_mib: z.int(),
    load: z.number(),
    snapshots: z
      .array(z.strictObject({ tag: z.string(), id: z.string(), pool: z.int() }))
      .meta({ description: "Snapshots it holds; a copy has the same id on every node" }),
  })
  .meta({ id: "ClusterNode" });

const clusterInfo = z
  .strictObject({
    nodes: z.array(clusterNode),
    moved: z.strictObject({ snapshots: z.int(), bytes: z.int() }).meta({ description: "Between nodes, by the gateway that answers" }),
  })
  .meta({ id: "Cluster" });

const updateNode = z
  .strictObject({ cordoned: z.boolean().optional().meta({ description: "true: it takes no forks, also after a restart" }) })
  .meta({ id: "UpdateNode" });

const moved = z
  .strictObject({
    id: z.string().meta({ description: "A sandbox, or a suspended workspace" }),
    name: z.string().nullable(),
    to: z.string().meta({ description: "Code of the node that has it now" }),
    state: sandboxState,
    problem: z.string().nullable().meta({ description: "Why it stays suspended there; null: it is as it was before" }),
  })
  .meta({ id: "Moved" });

const notMoved = z
  .strictObject({ id: z.string(), name: z.string().nullable(), code: z.string(), problem: z.string() })
  .meta({ id: "NotMoved" });

const drained = z
  .strictObject({
    node: z.string(),
    moved: z.array(moved),
    left: z.array(notMoved).meta({ description: "What is still on the node, as it was before, and why" }),
  })
  .meta({ id: "Drained" });

const moveStep = z
  .strictObject({
    step: z.enum(["depart", "reserve", "arrive", "leave", "settle", "stay", "drop", "claim", "pending"]),
    id: z.string().max(64).meta({ description: "claim: of the gateway that wants to move the sandboxes of a node that is leaving" }),
    to: z.string().max(16).optional().meta({ description: "leave: code of the node that has it from now on" }),
    record: z.record(z.string(), z.unknown()).optional().meta({ description: "reserve: the answer of depart" }),
  })
  .meta({ id: "MoveStep" });

const byNode = z.strictObject({ node: z.string().max(16).meta({ description: "Its code" }) });

export const clusterRoutes = {
  getCluster: {
    method: "GET",
    path: "/v1/cluster",
    scope: "read",
    summary: "Nodes of the cluster, their load and the snapshots they hold",
    responses: { 200: clusterInfo },
  },
  updateNode: {
    method: "PATCH",
    path: "/v1/cluster/nodes/:node",
    scope: "operator",
    summary: "Cordons a node, or ends that. Its sandboxes continue",
    params: byNode,
    body: updateNode,
    responses: { 200: clusterNode },
  },
  drainNode: {
    method: "POST",
    path: "/v1/cluster/nodes/:node/drain",
    scope: "operator",
    summary: "Cordons a node and moves its sandboxes to other nodes, with their ids. Only a gateway can",
    params: byNode,
    responses: { 200: drained },
  },
  moveSandbox: {
    method: "POST",
    path: "/v1/cluster/moves",
    scope: "operator",
    summary: "One step of a move, by which a gateway drains a node. Refused to all but gateways of the cluster",
    body: moveStep,
    responses: { 200: z.record(z.string(), z.unknown()).meta({ id: "MoveAnswer" }) },
  },
} as const satisfies Record<string, Route>;

export type ClusterInfo = z.infer<typeof clusterInfo>;
export type ClusterNode = z.infer<typeof clusterNode>;
export type Drained = z.infer<typeof drained>;
export type MoveStep = z.infer<typeof moveStep>;

// The cluster: its nodes, and what they hold. A daemon without gateways is a cluster of one node.

import * as z from "zod";
import { unixSeconds } from "./common.ts";
import type { Route } from "./route.ts";

const clusterNode = z
  .strictObject({
    code: z.string().nullable().meta({ description: "Ids that it makes begin with it; null: it has not answered yet" }),
    url: z.string().nullable().meta({ description: "Address by which gateways reach it; null: the daemon that answers" }),
    state: z.enum(["up", "down"]),
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

export const clusterRoutes = {
  getCluster: {
    method: "GET",
    path: "/v1/cluster",
    scope: "read",
    summary: "Nodes of the cluster, their load and the snapshots they hold",
    responses: { 200: clusterInfo },
  },
} as const satisfies Record<string, Route>;

export type ClusterInfo = z.infer<typeof clusterInfo>;

// The nodes of the cluster: load, and which holds which snapshot.

import type { ClusterInfo, ClusterNode } from "@forkd/daemon/api/cluster";
import { isOf } from "@forkd/daemon/store/project-names";
import type { Node } from "../nodes/node.ts";
import type { Cluster } from "./cluster.ts";

/** With the snapshots of one project, or of every one */
export function overview({ nodes, transfers }: Pick<Cluster, "nodes" | "transfers">, project: string): ClusterInfo {
  return { nodes: nodes.all.map((node) => nodeInfo(node, project)), moved: { snapshots: transfers.count, bytes: transfers.bytes } };
}

export function nodeInfo({ code, url, status, problem, lastSeenMs, snapshots }: Node, project: string): ClusterNode {
  return {
    code,
    url,
    state: status ? "up" : "down",
    cordoned: status?.cordoned ?? false,
    problem: status ? null : problem,
    last_seen_unix: lastSeenMs === null ? null : Math.floor(lastSeenMs / 1000),
    version: status?.version ?? null,
    accelerator: status?.accelerator ?? null,
    sandboxes: status?.sandboxes ?? 0,
    max_sandboxes: status?.limits.max_sandboxes ?? 0,
    memory: status?.memory ?? { committed_mib: 0, available_mib: 0 },
    disk_free_mib: status?.disk.free_mib ?? 0,
    load: status?.load ?? 0,
    snapshots: [...snapshots.values()].filter((info) => isOf(info.project, project)).map(({ tag, id, pool }) => ({ tag, id, pool })),
  };
}

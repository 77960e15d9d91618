// REST handlers: this daemon as a cluster of one node.

import type { clusterRoutes } from "../../api/cluster.ts";
import type { Handlers } from "../handler.ts";

export const clusterHandlers: Pick<Handlers, keyof typeof clusterRoutes> = {
  getCluster: async (_input, { services: { manager } }) => {
    const { node, version, accelerator, sandboxes, limits, memory, disk, load } = await manager.status();
    const { items } = await manager.snapshots.list({});
    const self = {
      code: node,
      url: null,
      state: "up" as const,
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
    return { status: 200, body: { nodes: [self], moved: { snapshots: 0, bytes: 0 } } };
  },
};

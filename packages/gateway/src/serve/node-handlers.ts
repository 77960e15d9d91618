// Nodes of the cluster: overview, cordon and drain.

import { routes } from "@forkd/daemon/api/routes";
import { parse } from "@forkd/daemon/dispatch/parse";
import { respond } from "@forkd/daemon/dispatch/respond";
import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import { refusalOf } from "../nodes/steps.ts";
import { askerOf, projectOf, type Asked } from "./cluster.ts";
import { drain } from "./drain.ts";
import { bodyOf, own, type Handler } from "./handler.ts";
import { nodeInfo, overview } from "./overview.ts";
import type { Node } from "../nodes/node.ts";

type NodeRoute = "getCluster" | "updateNode" | "drainNode" | "moveSandbox";

export const nodeHandlers: Record<NodeRoute, Handler> = {
  getCluster: own((asked) => overview(asked.cluster, projectOf(asked))),
  updateNode: async (asked) => {
    const { cordoned } = parse(routes.updateNode.body, await bodyOf(asked), "body");
    const node = nodeIn(asked);
    if (cordoned !== undefined) await setCordon(asked, node, cordoned);
    await respond(asked.exchange, { status: 200, body: nodeInfo(node, projectOf(asked)) });
  },
  drainNode: async (asked) => {
    const node = nodeIn(asked);
    await setCordon(asked, node, true);
    await respond(asked.exchange, { status: 200, body: await drain(asked.cluster, node, asked.exchange.signal) });
  },
  moveSandbox: async () => {
    throw new ForkdError("FORBIDDEN", "Cannot move a sandbox: only gateways of the cluster do.", {
      hint: "Run 'forkd cluster drain NODE' through a gateway.",
    });
  },
};

function nodeIn({ cluster, params }: Asked): Node {
  const code = params["node"] ?? "";
  const node = cluster.nodes.byCode(code);
  if (!node)
    throw notFound(
      "node",
      code,
      cluster.nodes.all.flatMap(({ code: known }) => known ?? []),
    );
  return cluster.places.reachable(node);
}

async function setCordon({ exchange }: Asked, node: Node, cordoned: boolean): Promise<void> {
  const body = Buffer.from(JSON.stringify({ cordoned }));
  const reply = await node.ask("PATCH", `/v1/cluster/nodes/${node.code}`, { as: askerOf(exchange), body });
  if (reply.status !== 200) throw refusalOf(reply);
  if (node.status) node.status = { ...node.status, cordoned };
}

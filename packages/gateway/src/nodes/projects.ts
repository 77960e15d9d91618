// Gives the projects of the cluster to the nodes, which enforce their quotas.

import { isDeepStrictEqual } from "node:util";
import { ForkdError } from "@forkd/runtime/errors";
import { GATEWAY } from "./signer.ts";
import type { ProjectInfo } from "@forkd/daemon/api/project";
import type { ClusterProjects } from "../state/projects.ts";
import type { Node, Reply } from "./node.ts";

/** Makes, changes and removes projects of the node until they are those of the cluster. Ones that only the node has stay */
export async function giveProjects(node: Node, projects: Pick<ClusterProjects, "stored" | "removed">): Promise<void> {
  const { status, body } = await node.ask("GET", "/v1/projects", { as: GATEWAY });
  if (status !== 200) throw new ForkdError("NODE_UNREACHABLE", `Cannot read the projects of node ${node.label}: it answers ${status}.`);
  const has = new Map((body as ProjectInfo[]).map(({ name, quota }) => [name, quota]));
  const send = async (method: string, path: string, value?: object): Promise<Reply> =>
    node.ask(method, path, { as: GATEWAY, body: value && Buffer.from(JSON.stringify(value)) });
  for (const { name, quota } of projects.stored) {
    const known = has.get(name);
    // two gateways may do this at once: the second finds it done
    if (!known) await send("POST", "/v1/projects", { name, ...quota });
    else if (!isDeepStrictEqual(known, quota)) await send("PATCH", `/v1/projects/${name}`, quota);
  }
  // refused while the node has something of it, which the removal has then not seen
  for (const name of projects.removed) if (has.has(name)) await send("DELETE", `/v1/projects/${name}`);
}

// Options of a gateway, checked.

import { isIP } from "node:net";
import { resolve } from "node:path";
import { ForkdError } from "@forkd/runtime/errors";
import { splitBind } from "@forkd/daemon/config";

const MAX_NODES = 1000;
/** Name of a Service in Kubernetes */
const SERVICE = /^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/;

export type GatewayOptions = {
  /** addresses of the daemons; none with `kubernetes` */
  nodes: string[];
  bind: string;
  /** folder with tokens, projects and tags; null with `kubernetes` */
  state: string | null;
  /** Service whose EndpointSlices list the daemons; its API has the state */
  kubernetes: string | null;
  /** with `kubernetes`: the daemon of a machine that is cordoned is drained */
  drainMachines: boolean;
  clusterKeyFile: string;
  tokenFile: string | null;
  tlsCert: string | null;
  tlsKey: string | null;
  proxyDomain: string | null;
  allowedHosts: string | null;
  auditLog: string | null;
  /** address of the agent-sandbox API; null: it is not served */
  agentsBind: string | null;
  /** authority of the API server's certificate; null: the cluster says it */
  agentsClientCa: string | null;
  /** names in that certificate; none: all */
  agentsClientNames: string[];
  drainSecs: number;
};

export type GivenOptions = {
  nodes?: string | undefined;
  bind?: string | undefined;
  state?: string | undefined;
  kubernetes?: string | undefined;
  drainMachines?: boolean | undefined;
  clusterKeyFile?: string | undefined;
  tokenFile?: string | undefined;
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
  insecure?: boolean | undefined;
  proxyDomain?: string | undefined;
  allowedHosts?: string | undefined;
  auditLog?: string | undefined;
  agentsBind?: string | undefined;
  agentsClientCa?: string | undefined;
  agentsClientNames?: string | undefined;
  drainSecs?: number | undefined;
};

/** Throws BAD_CONFIG */
export function gatewayOptions(given: GivenOptions): GatewayOptions {
  const { clusterKeyFile, bind = "127.0.0.1:8890" } = given;
  if (clusterKeyFile === undefined) throw wrong("cluster-key-file", "name the file with the key of the cluster");
  const { host, port } = splitBind(bind);
  if (host === "" || port > 65_535) throw wrong("bind", "must be HOST:PORT such as 127.0.0.1:8890");
  if ((given.tlsCert === undefined) !== (given.tlsKey === undefined)) throw wrong("tls-cert", "it and --tls-key go together");
  const isLoopback = host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
  if (!isLoopback && given.tlsCert === undefined && !given.insecure)
    throw new ForkdError("BAD_CONFIG", `Cannot serve ${bind} without TLS: others could read the tokens in transit.`, {
      hint: "Give --tls-cert and --tls-key, bind to 127.0.0.1, or use --insecure if you control the whole network.",
    });
  if (given.drainMachines && given.kubernetes === undefined) throw wrong("drain-machines", "it goes with --kubernetes");
  const path = (text: string | undefined): string | null => (text === undefined || text === "none" ? null : resolve(text));
  return {
    ...membersOf(given),
    drainMachines: given.drainMachines === true,
    bind,
    clusterKeyFile: resolve(clusterKeyFile),
    tokenFile: path(given.tokenFile),
    tlsCert: path(given.tlsCert),
    tlsKey: path(given.tlsKey),
    proxyDomain: given.proxyDomain === "none" ? null : (given.proxyDomain ?? "localhost").toLowerCase(),
    allowedHosts: given.allowedHosts ?? null,
    auditLog: path(given.auditLog),
    ...agentsOf(given),
    drainSecs: given.drainSecs ?? 30,
  };
}

function agentsOf(given: GivenOptions): Pick<GatewayOptions, "agentsBind" | "agentsClientCa" | "agentsClientNames"> {
  const { agentsBind, agentsClientCa, agentsClientNames, tlsCert, kubernetes } = given;
  if (agentsBind === undefined) {
    if (agentsClientCa !== undefined || agentsClientNames !== undefined) throw wrong("agents-client-ca", "it goes with --agents-bind");
    return { agentsBind: null, agentsClientCa: null, agentsClientNames: [] };
  }
  const { host, port } = splitBind(agentsBind);
  if (host === "" || port > 65_535) throw wrong("agents-bind", "must be HOST:PORT such as 0.0.0.0:8892");
  if (tlsCert === undefined) throw wrong("agents-bind", "Kubernetes asks with https: give --tls-cert and --tls-key");
  if (agentsClientCa === undefined && kubernetes === undefined)
    throw wrong("agents-client-ca", "name the authority that signed the certificate of the API server's aggregation layer");
  const names = (agentsClientNames ?? "").split(",").map((name) => name.trim());
  return {
    agentsBind,
    agentsClientCa: agentsClientCa === undefined ? null : resolve(agentsClientCa),
    agentsClientNames: names.filter((name) => name !== ""),
  };
}

function membersOf({ nodes, state, kubernetes }: GivenOptions): Pick<GatewayOptions, "nodes" | "state" | "kubernetes"> {
  if (kubernetes !== undefined) {
    if (nodes !== undefined || state !== undefined) throw wrong("kubernetes", "it replaces --nodes and --state");
    if (!SERVICE.test(kubernetes)) throw wrong("kubernetes", "name a Service, such as forkd-nodes");
    return { nodes: [], state: null, kubernetes };
  }
  if (nodes === undefined || nodes === "") throw wrong("nodes", "name at least one daemon, such as http://10.0.0.1:8889");
  if (state === undefined) throw wrong("state", "name a folder");
  const urls = nodes.split(",").map((url) => url.trim());
  for (const url of urls)
    if (!/^https?:\/\/[^/?#@\s]+\/?$/.test(url) || !URL.canParse(url))
      throw wrong("nodes", `${JSON.stringify(url)} is not an address such as http://10.0.0.1:8889`);
  const origins = [...new Set(urls.map((url) => new URL(url).origin))];
  if (origins.length > MAX_NODES) throw wrong("nodes", `at most ${MAX_NODES} nodes`);
  return { nodes: origins, state: resolve(state), kubernetes: null };
}

function wrong(option: string, why: string): ForkdError {
  return new ForkdError("BAD_CONFIG", `Cannot start a gateway: --${option}: ${why}.`);
}

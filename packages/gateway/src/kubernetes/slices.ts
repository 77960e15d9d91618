// Addresses of daemons in the EndpointSlices of a Service.

import { isIPv6 } from "node:net";

import type { KubernetesObject } from "./cache.ts";

/** Of the Service: it names the port that daemons listen on */
const PORT = "https";

/** Only what is read here */
export type Endpoint = { addresses: string[]; nodeName?: string; conditions?: { ready?: boolean } };
export type EndpointSlice = KubernetesObject & {
  addressType: string;
  endpoints?: Endpoint[] | null;
  ports?: { name?: string; port?: number }[] | null;
};

export type FoundNode = {
  /** address of the daemon */
  url: string;
  /** name of its machine in Kubernetes */
  machine: string;
};

/** Each daemon once. Daemons that are not ready are included: one that drains still answers for its sandboxes */
export function nodesIn(slices: readonly EndpointSlice[]): FoundNode[] {
  const found = new Map<string, FoundNode>();
  for (const slice of slices) {
    const port = slice.ports?.find(({ name }) => name === PORT)?.port;
    if (port === undefined || slice.addressType === "FQDN") continue;
    for (const { addresses, nodeName } of slice.endpoints ?? []) {
      const [address] = addresses;
      if (address === undefined) continue;
      const url = `https://${isIPv6(address) ? `[${address}]` : address}:${port}`;
      found.set(url, { url, machine: nodeName ?? address });
    }
  }
  return [...found.values()].sort((a, b) => a.url.localeCompare(b.url));
}

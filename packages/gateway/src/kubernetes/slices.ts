// Addresses of daemons in the EndpointSlices of a Service.

import { isIPv6 } from "node:net";

import type { V1EndpointSlice } from "@kubernetes/client-node";

/** Of the Service: it names the port that daemons listen on */
const PORT = "https";

export type FoundNode = {
  /** address of the daemon */
  url: string;
  /** name of its machine in Kubernetes */
  machine: string;
};

/** Each daemon once. Daemons that are not ready are included: one that drains still answers for its sandboxes */
export function nodesIn(slices: readonly V1EndpointSlice[]): FoundNode[] {
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

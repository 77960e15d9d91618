import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { nodesIn, type Endpoint, type EndpointSlice } from "../../src/kubernetes/slices.ts";

const PORTS = [
  { name: "metrics", port: 9100 },
  { name: "https", port: 8889 },
];

describe("daemons in EndpointSlices", () => {
  it("are found at the port with the name, each once, ready or not", () => {
    const found = nodesIn([
      slice([endpoint("10.0.0.2", "b", false), endpoint("10.0.0.1", "a", true)]),
      // Kubernetes may list an endpoint twice while it moves it between slices
      slice([endpoint("10.0.0.1", "a", true)]),
    ]);
    assert.deepEqual(found, [
      { url: "https://10.0.0.1:8889", machine: "a" },
      { url: "https://10.0.0.2:8889", machine: "b" },
    ]);
  });

  it("have IPv6 addresses in brackets, and their address for a name if they have none", () => {
    const found = nodesIn([slice([{ addresses: ["fd00::1"] }], { addressType: "IPv6" })]);
    assert.deepEqual(found, [{ url: "https://[fd00::1]:8889", machine: "fd00::1" }]);
  });

  it("are none in slices without the port, without endpoints, or with host names", () => {
    const other = slice([endpoint("10.0.0.1", "a", true)], { ports: [{ name: "http", port: 80 }] });
    const named = slice([endpoint("node.example", "a", true)], { addressType: "FQDN" });
    assert.deepEqual(nodesIn([other, named, slice([], { endpoints: null as never })]), []);
  });
});

function slice(endpoints: Endpoint[], changes: Partial<EndpointSlice> = {}): EndpointSlice {
  return Object.assign({ addressType: "IPv4", endpoints, ports: PORTS }, changes);
}

function endpoint(address: string, nodeName: string, ready: boolean): Endpoint {
  return { addresses: [address], nodeName, conditions: { ready } };
}

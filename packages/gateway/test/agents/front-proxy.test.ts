import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { frontProxyFromCluster, frontProxyFromFile } from "../../src/agents/front-proxy.ts";
import { gatewayOptions, type GivenOptions } from "../../src/options.ts";
import type { Answer } from "../../src/kubernetes/api.ts";

const CONFIG = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

function api(data: Record<string, string> | null): Parameters<typeof frontProxyFromCluster>[0] {
  return {
    request: async <T>(_verb: string, path: string) => {
      assert.equal(path, CONFIG);
      return (data === null ? { status: "missing" } : { status: "ok", body: { data } }) as Answer<T>;
    },
  };
}

describe("front proxy", () => {
  it("is known from the cluster", async () => {
    const data = {
      "requestheader-client-ca-file": "CA",
      "requestheader-allowed-names": '["aggregator","other"]',
      "requestheader-username-headers": '["X-Remote-User","X-User"]',
    };
    assert.deepEqual(await frontProxyFromCluster(api(data)), {
      ca: "CA",
      names: ["aggregator", "other"],
      userHeaders: ["x-remote-user", "x-user"],
    });
    const few = await frontProxyFromCluster(api({ "requestheader-client-ca-file": "CA" }));
    assert.deepEqual(few, { ca: "CA", names: [], userHeaders: ["x-remote-user"] });
  });

  it("is missing with a reason", async () => {
    await assert.rejects(frontProxyFromCluster(api(null)), { code: "BAD_CONFIG", hint: /deploy\/kubernetes\/agents/ });
    await assert.rejects(frontProxyFromCluster(api({})), { code: "BAD_CONFIG" });
    await assert.rejects(frontProxyFromFile("/nowhere/ca.crt", []), { code: "BAD_CONFIG" });
  });
});

describe("options of the agent-sandbox API", () => {
  const base: GivenOptions = { nodes: "http://10.0.0.1:1", state: "s", clusterKeyFile: "k", tlsCert: "c", tlsKey: "k" };

  it("need TLS and the authority of the API server", () => {
    const { agentsBind, agentsClientNames } = gatewayOptions({
      ...base,
      agentsBind: "0.0.0.0:8892",
      agentsClientCa: "ca",
      agentsClientNames: "a, b",
    });
    assert.deepEqual([agentsBind, agentsClientNames], ["0.0.0.0:8892", ["a", "b"]]);
    assert.equal(gatewayOptions(base).agentsBind, null);
    const { nodes: _nodes, state: _state, ...others } = base;
    assert.equal(gatewayOptions({ ...others, kubernetes: "forkd-nodes", agentsBind: "0.0.0.0:1" }).agentsClientCa, null);
    for (const [given, why] of [
      [{ agentsBind: "0.0.0.0:1" }, /agents-client-ca/],
      [{ agentsClientCa: "ca" }, /agents-bind/],
      [{ agentsBind: "x", agentsClientCa: "ca" }, /agents-bind/],
      [{ agentsBind: "0.0.0.0:1", agentsClientCa: "ca", tlsCert: undefined, tlsKey: undefined }, /https/],
    ] as const)
      assert.throws(() => gatewayOptions({ ...base, ...given }), { code: "BAD_CONFIG", message: why });
  });
});

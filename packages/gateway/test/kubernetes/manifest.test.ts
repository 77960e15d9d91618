import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { it } from "node:test";
import { gatewayOptions } from "../../src/options.ts";

const MANIFEST = join(resolve(import.meta.dirname, "..", "..", "..", ".."), "deploy/kubernetes/cluster/gateway.yaml");

it("the manifest of the gateways has options that a gateway takes", async () => {
  const lines = [...(await readFile(MANIFEST, "utf8")).matchAll(/^ +- --([a-z-]+)=(\S+)$/gm)];
  const given = Object.fromEntries(
    lines.map(([, name = "", value]) => [name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase()), value]),
  );
  const { kubernetes, nodes, state, bind, tlsCert } = gatewayOptions({ ...given, drainSecs: Number(given["drainSecs"]) });
  assert.deepEqual(
    { kubernetes, nodes, state, bind, tlsCert },
    { kubernetes: "forkd-nodes", nodes: [], state: null, bind: "0.0.0.0:8889", tlsCert: "/tls/tls.crt" },
  );
});

it("a gateway takes its nodes and state from one place", () => {
  const key = { clusterKeyFile: "/key" };
  for (const given of [
    { kubernetes: "a", nodes: "http://10.0.0.1:1" },
    { kubernetes: "a", state: "/state" },
    { kubernetes: "A_b" },
    { nodes: "http://10.0.0.1:1", state: "/state", drainMachines: true },
    { nodes: "http://10.0.0.1:1" },
    {},
  ])
    assert.throws(() => gatewayOptions({ ...key, ...given }), { code: "BAD_CONFIG" });
});

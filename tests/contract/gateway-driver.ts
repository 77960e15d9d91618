// Contract driver for plain HTTP requests through a gateway of a cluster.

import { SpecClient } from "../helpers/spec-client.ts";
import { callBy } from "./rest-driver.ts";
import type { TestGateway } from "../helpers/cluster.ts";
import type { Case, Driver } from "./case.ts";

const OF_A_NODE = "belongs to one node; the gateway refuses it with UNSUPPORTED";
const SUMS = "describes the cluster: packages/gateway/test/routing.test.ts";
const HOST_FILES = "needs files of a node's machine, which only its socket may use";
const ONE_NODE = "works with what one node has, which the gateway cannot see in the stream";

/** Routes whose answers differ from a daemon's by design, each with the reason */
const DIFFERENT: Partial<Record<Case["route"], string>> = {
  getMetrics: SUMS,
  getStatus: SUMS,
  getConfig: SUMS,
  getCluster: SUMS,
  drainNode: "a gateway can: tests/e2e/gateway-drain.test.ts",
  getEvents: SUMS,
  stopDaemon: OF_A_NODE,
  listKeys: OF_A_NODE,
  createKey: OF_A_NODE,
  getKey: OF_A_NODE,
  deleteKey: OF_A_NODE,
  buildRecipe: ONE_NODE,
};

/** Groups of cases that depend on such routes */
const GROUPS_LEFT_OUT: Record<string, string> = {
  shares: HOST_FILES,
  recipes: ONE_NODE,
  packs: `${OF_A_NODE}: their keys; movement of packs is in tests/e2e/gateway.test.ts`,
  "networks of packs": ONE_NODE,
};

const CASES_LEFT_OUT: Record<string, string> = {
  "an archive that is not there": HOST_FILES,
  "a file to copy that is not there": HOST_FILES,
};

export function gatewayDriver({ bind }: TestGateway, token: string): Driver {
  const [host = "", port] = bind.split(":");
  return {
    name: "gateway",
    call: async (route, args) => {
      const given = args.token ?? token;
      return callBy(new SpecClient({ host, port: Number(port) }, given === "" ? {} : { token: given }), route, args);
    },
  };
}

/** Reason why a gateway does not answer a case as a daemon does */
export function reasonAgainstGateway(group: string, { route, what }: Case): string | undefined {
  return GROUPS_LEFT_OUT[group] ?? CASES_LEFT_OUT[what] ?? DIFFERENT[route];
}

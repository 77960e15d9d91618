// The contract through a gateway, before a cluster of two nodes.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Context, reasonAgainst } from "../contract/case.ts";
import { GROUPS } from "../contract/cases.ts";
import { gatewayDriver, reasonAgainstGateway } from "../contract/gateway-driver.ts";
import { runCase } from "../contract/run.ts";
import { TestCluster } from "../helpers/cluster.ts";
import type { Driver } from "../contract/case.ts";

describe("the contract by gateway", () => {
  let cluster: TestCluster;
  let driver: Driver;
  let c: Context;

  before(async () => {
    cluster = await TestCluster.make();
    await cluster.addNode([], async (daemon) => daemon.makePython());
    await cluster.addNode();
    driver = gatewayDriver(await cluster.addGateway(), cluster.token);
    c = new Context(driver.name);
  });

  after(async () => cluster[Symbol.asyncDispose]());

  for (const { title, cases } of GROUPS)
    it(`${title}: ${cases.length} cases`, async (t) => {
      const left = cases.filter((item) => reasonAgainstGateway(title, item) !== undefined);
      const reasons = new Set(left.map((item) => reasonAgainstGateway(title, item)));
      if (left.length > 0) t.diagnostic(`${left.length} cases are left out: ${[...reasons].join("; ")}`);
      const problems: string[] = [];
      for (const item of cases)
        if (reasonAgainst(item, "rest") === undefined && reasonAgainstGateway(title, item) === undefined)
          await runCase(driver, item, c).catch((error: unknown) => problems.push(`${item.route}: ${(error as Error).message}`));
      assert.deepEqual(problems, []);
    });
});

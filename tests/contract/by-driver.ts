// The contract through one driver: runs every case, checks for leftovers and for routes omitted without a reason.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { routes, type RouteName } from "../../packages/daemon/src/api/routes.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { SpecClient } from "../helpers/spec-client.ts";
import { Context, reasonAgainst, type Driver } from "./case.ts";
import { GROUPS } from "./cases.ts";
import { metricsOf } from "./metrics.ts";
import { runCase } from "./run.ts";

const OPTIONS = ["--bind", "127.0.0.1:0"];
const EVERY_STATE = ["running", "paused", "ended", "lost"] as const;

type Options = {
  /** omitted routes, each with the reason */
  without?: Partial<Record<RouteName, string>>;
  /** the driver cannot stop the daemon */
  cannotStop?: boolean;
};

export function contractBy(make: (daemon: TestDaemon) => Driver, opts: Options = {}): void {
  const name = make.name.replace("Driver", "");
  describe(`the contract by ${name}`, () => {
    let daemon: TestDaemon;
    let rest: SpecClient;
    let driver: Driver;
    let c: Context;
    let start: Map<RouteName, number>;
    const used = new Set<RouteName>();

    before(async () => {
      daemon = await TestDaemon.start(OPTIONS);
      rest = new SpecClient({ socketPath: daemon.socket });
      await daemon.makePython();
      driver = make(daemon);
      c = new Context(driver.name);
      start = await requestCounts(rest);
    });

    after(async () => daemon[Symbol.asyncDispose]());

    for (const { title, cases } of GROUPS) {
      it(`${title}: ${cases.length} cases`, async () => {
        for (const item of cases) if (reasonAgainst(item, driver.name) === undefined) await runCase(driver, item, c);
      });
    }

    it("leaves nothing behind", async () => {
      const end = await requestCounts(rest);
      for (const [route, count] of end) if (count > (start.get(route) ?? 0) + (route === "getMetrics" ? 1 : 0)) used.add(route);
      await driver.close?.();
      assert.deepEqual(await daemon.controller.listSandboxes({ state: [...EVERY_STATE] }), []);
      assert.deepEqual(
        (await daemon.controller.listSnapshots()).map(({ tag }) => tag),
        ["python"],
      );
      assert.deepEqual(await daemon.controller.listWorkspaces(), []);
      assert.deepEqual(await daemon.controller.listTokens(), []);
    });

    if (!opts.cannotStop) {
      it("stops the daemon, and sandboxes continue to run", async () => {
        const [sandbox] = await daemon.controller.spawnSandboxes("python");
        assert.ok(sandbox);
        const other = make(daemon);
        await runCase(other, { what: "stop", route: "stopDaemon", expect: { value: null } }, new Context(other.name));
        await daemon.exited();
        used.add("stopDaemon");
        await other.close?.();
        await daemon.up(OPTIONS);
        assert.equal((await daemon.controller.getSandbox(sandbox.id)).state, "running");
        await daemon.controller.stop({ killSandboxes: true });
        await daemon.exited();
        await daemon.up(OPTIONS);
        assert.deepEqual(await daemon.controller.listSandboxes({ state: [...EVERY_STATE] }), []);
      });

      it("uses every route, except those that it leaves out for a reason", () => {
        // Routes that upgrade the connection have their own tests.
        const all = (Object.keys(routes) as RouteName[]).filter((route) => !(101 in routes[route].responses));
        const without = opts.without ?? {};
        assert.deepEqual(
          all.filter((route) => !used.has(route) && !(route in without)),
          [],
          `not reachable by ${name}`,
        );
        assert.deepEqual(
          Object.keys(without).filter((route) => used.has(route as RouteName)),
          [],
          "used, but listed as left out",
        );
      });
    }
  });
}

/** Number of answers of each route so far */
async function requestCounts(rest: SpecClient): Promise<Map<RouteName, number>> {
  const counts = new Map<RouteName, number>();
  for (const [name, value] of await metricsOf(rest)) {
    const [, path, method] = /^forkd_http_requests_total\{route="([^"]+)",method="(\w+)"/.exec(name) ?? [];
    const route = (Object.keys(routes) as RouteName[]).find(
      (key) => routes[key].path === path && ["ALL", method].includes(routes[key].method),
    );
    if (route) counts.set(route, (counts.get(route) ?? 0) + value);
  }
  return counts;
}

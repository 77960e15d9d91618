import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { planFor, type Machine } from "../../src/kubernetes/warm-plan.ts";

const SPEC = { replicas: 2, pool: 0, keep: true };

describe("plan of a WarmSnapshot", () => {
  it("fetches as often as machines are missing, and each time to the same ones", () => {
    const plan = planFor(SPEC, "default~python", [machine("a"), machine("b"), machine("c")]);
    assert.equal(plan.fetch.length, 2);
    assert.deepEqual(planFor(SPEC, "default~python", [machine("c"), machine("b"), machine("a")]), plan);
  });

  it("spreads snapshots over machines", () => {
    const machines = Array.from({ length: 10 }, (_, at) => machine(`m${at}`));
    const chosen = new Set(Array.from({ length: 50 }, (_, at) => planFor({ ...SPEC, replicas: 1 }, `default~t${at}`, machines).fetch[0]));
    assert.ok(chosen.size >= 8, `only ${chosen.size} machines`);
  });

  it("does nothing while enough hold it or are fetching it", () => {
    const machines = [machine("a", { holds: true }), machine("b", { isFetching: true }), machine("c")];
    assert.deepEqual(planFor(SPEC, "k", machines), { fetch: [], pool: [], drop: [] });
  });

  it("leaves out machines that do not answer, have just failed or are not named", () => {
    const machines = [machine("a", { isUp: false }), machine("b", { hasFailed: true }), machine("c"), machine("d")];
    assert.deepEqual(planFor({ ...SPEC, replicas: 4, nodes: ["a", "b", "d"] }, "k", machines).fetch, ["d"]);
  });

  it("counts a holder that is away for a moment", () => {
    const machines = [machine("a", { holds: true, isUp: false }), machine("b")];
    assert.deepEqual(planFor({ ...SPEC, replicas: 1 }, "k", machines).fetch, []);
  });

  it("replaces the copy of a cordoned machine, fetches nothing to it, and leaves its copy and its VMMs as they are", () => {
    const machines = [machine("a", { holds: true, isCordoned: true, pool: 1 }), machine("b", { isCordoned: true }), machine("c")];
    assert.deepEqual(planFor({ ...SPEC, replicas: 2 }, "k", machines), { fetch: ["c"], pool: [], drop: [] });
    const replaced = [machine("a", { holds: true, isCordoned: true, pool: 1 }), machine("c", { holds: true })];
    assert.deepEqual(planFor({ ...SPEC, replicas: 1, keep: false }, "k", replaced), { fetch: [], pool: [], drop: [] });
  });

  it("prepares VMMs on machines whose number differs", () => {
    const machines = [machine("a", { holds: true, pool: 3 }), machine("b", { holds: true })];
    assert.deepEqual(planFor({ ...SPEC, pool: 3 }, "k", machines).pool, ["b"]);
  });

  it("drops copies beyond the wanted ones only when it says so, and never the last", () => {
    const machines = [machine("a", { holds: true }), machine("b", { holds: true })];
    assert.deepEqual(planFor({ ...SPEC, replicas: 1 }, "k", machines).drop, []);
    assert.equal(planFor({ ...SPEC, replicas: 1, keep: false }, "k", machines).drop.length, 1);
    assert.deepEqual(planFor({ ...SPEC, replicas: 0, keep: false }, "k", machines).drop, []);
    assert.deepEqual(
      planFor({ ...SPEC, replicas: 1, keep: false, nodes: ["c"] }, "k", [...machines, machine("c", { isFetching: true })]).drop,
      [],
    );
  });
});

function machine(name: string, facts: Partial<Machine> = {}): Machine {
  return { name, isUp: true, isCordoned: false, holds: false, isFetching: false, hasFailed: false, pool: 0, ...facts };
}

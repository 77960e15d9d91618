// Cases for the life of sandboxes: fork, list, update, pause, end.

import { above, exactly, excluding, fails, gives, including, REST_AND_SDK, size, within, type Case } from "./case.ts";

const OLD_FIELDS = { per_child_netns: true, prewarm: true, live_fork: true, hugepages: true };
const NOT_CHOSEN = { mcp: "a model does not choose how it is isolated" };

export const sandboxCases: Case[] = [
  {
    what: "one fork with everything, in a plain list; older fields have no effect and are named",
    route: "createSandboxes",
    args: (c) => ({
      body: {
        snapshot_tag: "python",
        n: 1,
        name: c.name("one"),
        metadata: {
          who: c.driver,
          kind: "one",
        },
        env: { MODE: "contract" },
        ttl_secs: 3600,
        idle_timeout_secs: 1800,
        memory_limit_mib: 256,
        ...OLD_FIELDS,
      },
    }),
    expect: (c) => {
      const identity = { id: /^sb-/, name: c.name("one"), snapshot_tag: "python", snapshot_id: /^sn-/, state: "running", reason: null };
      const machine = {
        memory_mib: 256,
        vcpus: 1,
        disk_mib: null,
        kernels: ["python"],
        isolation: /^(kvm|emulated)$/,
        confinement: /^(namespaces|none)$/,
        pid: above(1),
        fork_ms: above(0),
      };
      const life = {
        expires_at_unix: within(3600),
        idle_timeout_secs: 1800,
        created_by: c.driver === "gateway" ? "token-file" : "local",
        memory_limit_mib: 256,
        cpu_limit: null,
      };
      const older = { netns: null, guest_addr: "", has_branched: false, branch_count: 0, last_branch_memory_path: null };
      const certificate = {
        clock_measured: /^(snapshot|sandbox)$/,
        clock_drift_ppm: above(-10_001),
        guest_rng: "reseeded",
        ran_before_ms: 0,
        not_reseeded: [],
        disk: "private-overlay",
        memory: "private-copy-on-write",
        identity: { hostname: /^sb-/ },
      };
      const warnings = exactly(...Object.keys(OLD_FIELDS).map((field) => new RegExp(`^${field} has no effect`)));
      const metadata = { who: c.driver, kind: "one" };
      return gives([{ ...identity, ...machine, ...life, ...older, certificate, metadata, warnings }], 201);
    },
    save: "one",
  },
  {
    what: "three forks at once",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", n: 3, metadata: { who: c.driver, kind: "many" } } }),
    expect: gives([{ warnings: [], name: null }, { expires_at_unix: null }, { idle_timeout_secs: null, memory_limit_mib: null }], 201),
    save: "many",
  },
  {
    what: "an outcome for each",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", n: 2, per_item: true, metadata: { who: c.driver, kind: "each" } } }),
    expect: gives({ results: [{ sandbox: { state: "running" } }, { sandbox: { state: "running" } }] }, 207),
    save: "each",
  },
  {
    what: "a name is for one",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", n: 2, name: c.name("two") } }),
    expect: fails("BAD_REQUEST", { usage: true }),
  },
  {
    what: "n = 0 is refused",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", n: 0 } }),
    expect: fails("BAD_REQUEST", { usage: true }),
  },
  {
    what: "n above 1000 is refused",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", n: 1001 } }),
    expect: fails("BAD_REQUEST", { usage: true }),
  },
  {
    what: "a name that is taken",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", name: c.name("one") } }),
    expect: fails("EXISTS"),
  },
  {
    what: "a fork of nothing",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "nothing" } }),
    expect: fails("NOT_FOUND", { message: () => /nothing/ }),
  },
  {
    what: "a fork that may be emulated",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", isolation: "any" } }),
    expect: gives([{ isolation: /^(kvm|emulated)$/, warnings: [] }], 201),
    save: "any",
    not: NOT_CHOSEN,
  },
  {
    what: "it runs",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("any.0.id") } }),
    expect: gives(null),
    not: NOT_CHOSEN,
  },
  {
    what: "an isolation that does not exist",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", isolation: "none" } }),
    expect: fails("BAD_REQUEST", { usage: true }),
    not: NOT_CHOSEN,
  },
  {
    what: "a limit that cannot be kept is refused",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", memory_limit_mib: 100 } }),
    expect: fails("LIMIT_UNAVAILABLE", { message: () => /memory_limit_mib/ }),
  },
  {
    what: "several limits are refused, with all names",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", cpu_limit: 0.5, cpu_weight: 50, pids_limit: 64, io_limit_mbps: 1.5 } }),
    expect: fails("LIMIT_UNAVAILABLE", { message: () => /cpu_limit, cpu_weight, pids_limit, io_limit_mbps/ }),
  },
  {
    what: "for clients of the older API a memory limit that cannot be kept is a warning",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", per_child_netns: false, memory_limit_mib: 100, ttl_secs: 600 } }),
    expect: gives([{ memory_limit_mib: null, warnings: [/^memory_limit_mib has no effect: Cannot apply memory_limit_mib/] }], 201),
    save: "older",
    not: REST_AND_SDK("it leaves out what was not asked for"),
  },
  {
    what: "it runs",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("older.0.id") } }),
    expect: gives(null),
    not: REST_AND_SDK("follows the case before"),
  },
  {
    what: "a memory limit of 0 is none",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", memory_limit_mib: 0 } }),
    expect: gives([{ memory_limit_mib: null, warnings: [] }], 201),
    save: "unlimited",
  },
  {
    what: "it runs",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("unlimited.0.id") } }),
    expect: gives(null),
  },
  {
    what: "sandboxes are found by their metadata",
    route: "listSandboxes",
    args: (c) => ({ query: { metadata: [`who=${c.driver}`, "kind=many"] } }),
    expect: (c) => gives(exactly(...["0", "1", "2"].map((i) => ({ id: c.at(`many.${i}.id`) })))),
  },
  {
    what: "by snapshot and state",
    route: "listSandboxes",
    args: () => ({ query: { tag: "python", state: "paused,lost" } }),
    expect: gives([]),
  },
  {
    what: "a first page",
    route: "listSandboxes",
    args: (c) => ({ query: { limit: 4, metadata: [`who=${c.driver}`] } }),
    expect: gives(size(4)),
    save: "page",
    not: REST_AND_SDK("lists are whole"),
  },
  {
    what: "the rest, which repeats nothing",
    route: "listSandboxes",
    args: (c) => ({ query: { limit: 4, metadata: [`who=${c.driver}`], cursor: c.next("page") } }),
    expect: (c) =>
      gives((rest: unknown) => size(2)(rest) && excluding(...["0", "1", "2", "3"].map((i) => ({ id: c.at(`page.${i}.id`) })))(rest)),
    not: REST_AND_SDK("lists are whole"),
  },
  {
    what: "a cursor that no page gave",
    route: "listSandboxes",
    args: () => ({ query: { limit: 4, cursor: "made!up" } }),
    expect: fails("BAD_REQUEST"),
    not: REST_AND_SDK("lists are whole"),
  },
  {
    what: "one by its id",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.at("one.0.id") } }),
    expect: (c) => gives({ id: c.at("one.0.id"), name: c.name("one") }),
  },
  {
    what: "the sandbox is found by its name",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: (c) => gives({ id: c.at("one.0.id"), certificate: { identity: c.get("one.0.certificate.identity") } }),
  },
  { what: "one that does not exist", route: "getSandbox", args: () => ({ params: { id: "sb-nothing" } }), expect: fails("NOT_FOUND") },
  {
    what: "a new name",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("many.0.id") }, body: { name: c.name("first") } }),
    expect: (c) => gives({ id: c.at("many.0.id"), name: c.name("first") }),
  },
  {
    what: "a name in use is refused",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("many.1.id") }, body: { name: c.name("first") } }),
    expect: fails("EXISTS"),
  },
  {
    what: "a name can be taken away, and metadata be replaced",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.name("first") }, body: { name: null, metadata: { other: "one" } } }),
    expect: gives({ name: null, metadata: (value: unknown) => JSON.stringify(value) === '{"other":"one"}' }),
    not: REST_AND_SDK("`rename` gives names"),
  },
  {
    what: "a longer life",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("one.0.id") }, body: { ttl_secs: 7200, idle_timeout_secs: 600 } }),
    expect: gives({ expires_at_unix: within(7200), idle_timeout_secs: 600 }),
  },
  {
    what: "the life time is removed",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("one.0.id") }, body: { ttl_secs: null, idle_timeout_secs: null } }),
    expect: gives({ expires_at_unix: null, idle_timeout_secs: null }),
  },
  {
    what: "new access tokens",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("one.0.id") }, body: { rotate_access: true } }),
    expect: (c) => gives({ id: c.at("one.0.id") }),
  },
  {
    what: "a missing sandbox cannot be changed",
    route: "updateSandbox",
    args: () => ({ params: { id: "sb-nothing" }, body: { ttl_secs: 60 } }),
    expect: fails("NOT_FOUND"),
  },
  { what: "a pause", route: "pauseSandbox", args: (c) => ({ params: { id: c.name("one") } }), expect: gives({ state: "paused" }) },
  { what: "a second pause", route: "pauseSandbox", args: (c) => ({ params: { id: c.name("one") } }), expect: gives({ state: "paused" }) },
  {
    what: "it is listed as paused",
    route: "listSandboxes",
    args: () => ({ query: { state: "paused" } }),
    expect: (c) => gives([{ id: c.at("one.0.id") }]),
  },
  ...(["pingSandbox", "execCommand", "evalCode", "branchSandbox"] as const).map((route): Case => ({
    what: `${route} of a paused one`,
    route,
    args: (c) => ({
      params: { id: c.name("one") },
      ...(route === "execCommand" ? { body: { args: ["true"] } } : route === "evalCode" ? { body: { code: "1" } } : {}),
    }),
    expect: fails("SANDBOX_PAUSED"),
  })),
  { what: "it is resumed", route: "resumeSandbox", args: (c) => ({ params: { id: c.name("one") } }), expect: gives({ state: "running" }) },
  {
    what: "a second resume has no effect",
    route: "resumeSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ state: "running" }),
  },
  {
    what: "it is suspended",
    route: "suspendSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ state: "suspended", pid: null }),
  },
  {
    what: "a second suspend has no effect",
    route: "suspendSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ state: "suspended" }),
  },
  {
    what: "evalCode of a suspended sandbox",
    route: "evalCode",
    args: (c) => ({ params: { id: c.name("one") }, body: { code: "1" } }),
    expect: fails("SANDBOX_SUSPENDED"),
  },
  {
    what: "the suspended sandbox is resumed",
    route: "resumeSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ state: "running" }),
  },
  {
    what: "a missing sandbox cannot be suspended",
    route: "suspendSandbox",
    args: () => ({ params: { id: "sb-nothing" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "it answers",
    route: "pingSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ pong: true, ms: above(0), kernels: ["python"] }),
  },
  {
    what: "a missing sandbox does not answer",
    route: "pingSandbox",
    args: () => ({ params: { id: "sb-nothing" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "the resources of one sandbox",
    route: "getSandboxStats",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: (c) =>
      gives({
        id: c.at("one.0.id"),
        state: "running",
        cpu_ms: above(0),
        private_guest_bytes: above(0),
        pss_bytes: above(0),
        disk_bytes: null,
      }),
    not: REST_AND_SDK("`stats` has all"),
  },
  {
    what: "the resources of all sandboxes",
    route: "getStats",
    expect: (c) => gives(including({ id: c.at("one.0.id") }, { id: c.at("many.0.id") })),
  },
];

export const endCases: Case[] = [
  {
    what: "a sandbox is ended by name",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives(null, 204),
  },
  {
    what: "an ended sandbox is not found",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.at("one.0.id") } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "an ended sandbox cannot be ended again",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("one.0.id") } }),
    expect: fails("NOT_FOUND"),
  },
  { what: "ending all sandboxes needs an explicit filter", route: "deleteSandboxes", expect: fails("BAD_REQUEST", { usage: true }) },
  {
    what: "everything is ended on request",
    route: "deleteSandboxes",
    args: () => ({ query: { all: true } }),
    expect: (c) => gives(including(c.at("many.0.id"), c.at("each.results.1.sandbox.id"))),
  },
  { what: "no sandbox remains", route: "listSandboxes", expect: gives([]) },
];

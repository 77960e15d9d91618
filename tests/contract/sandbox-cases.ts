// Sandboxes as wholes: forked, found, changed, paused, ended.

import { above, exactly, excluding, fails, gives, including, REST_AND_SDK, size, within, type Case } from "./case.ts";

const OLD_FIELDS = { per_child_netns: true, prewarm: true, live_fork: true, hugepages: true };

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
      const life = { expires_at_unix: within(3600), idle_timeout_secs: 1800, created_by: "local", memory_limit_mib: 256, cpu_limit: null };
      const older = { netns: null, guest_addr: "", has_branched: false, branch_count: 0, last_branch_memory_path: null };
      const certificate = {
        guest_rng: "reseeded",
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
    what: "none cannot be forked",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", n: 0 } }),
    expect: fails("BAD_REQUEST", { usage: true }),
  },
  {
    what: "nor more than a thousand",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", n: 1001 } }),
    expect: fails("BAD_REQUEST"),
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
    what: "a limit that cannot be kept is refused",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", memory_limit_mib: 100 } }),
    expect: fails("LIMIT_UNAVAILABLE", { message: () => /memory_limit_mib/ }),
  },
  {
    what: "and so are several, all of them named",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", cpu_limit: 0.5, cpu_weight: 50, pids_limit: 64, io_limit_mbps: 1.5 } }),
    expect: fails("LIMIT_UNAVAILABLE", { message: () => /cpu_limit, cpu_weight, pids_limit, io_limit_mbps/ }),
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
    what: "and by its name",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: (c) => gives({ id: c.at("one.0.id"), certificate: c.get("one.0.certificate") }),
  },
  { what: "one that does not exist", route: "getSandbox", args: () => ({ params: { id: "sb-nothing" } }), expect: fails("NOT_FOUND") },
  {
    what: "a new name",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("many.0.id") }, body: { name: c.name("first") } }),
    expect: (c) => gives({ id: c.at("many.0.id"), name: c.name("first") }),
  },
  {
    what: "not one that another has",
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
    what: "without end",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("one.0.id") }, body: { ttl_secs: null, idle_timeout_secs: null } }),
    expect: gives({ expires_at_unix: null, idle_timeout_secs: null }),
  },
  {
    what: "nothing cannot be changed",
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
  { what: "it goes on", route: "resumeSandbox", args: (c) => ({ params: { id: c.name("one") } }), expect: gives({ state: "running" }) },
  { what: "and only once", route: "resumeSandbox", args: (c) => ({ params: { id: c.name("one") } }), expect: gives({ state: "running" }) },
  {
    what: "it sleeps",
    route: "suspendSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ state: "suspended", pid: null }),
  },
  {
    what: "and only once",
    route: "suspendSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ state: "suspended" }),
  },
  {
    what: "evalCode of one that sleeps",
    route: "evalCode",
    args: (c) => ({ params: { id: c.name("one") }, body: { code: "1" } }),
    expect: fails("SANDBOX_SUSPENDED"),
  },
  { what: "it wakes up", route: "resumeSandbox", args: (c) => ({ params: { id: c.name("one") } }), expect: gives({ state: "running" }) },
  { what: "nothing does not sleep", route: "suspendSandbox", args: () => ({ params: { id: "sb-nothing" } }), expect: fails("NOT_FOUND") },
  {
    what: "it answers",
    route: "pingSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ pong: true, ms: above(0), kernels: ["python"] }),
  },
  { what: "nothing does not", route: "pingSandbox", args: () => ({ params: { id: "sb-nothing" } }), expect: fails("NOT_FOUND") },
  {
    what: "what it uses",
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
  { what: "what all use", route: "getStats", expect: (c) => gives(including({ id: c.at("one.0.id") }, { id: c.at("many.0.id") })) },
];

export const endCases: Case[] = [
  {
    what: "a sandbox is ended by name",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives(null, 204),
  },
  { what: "and is gone", route: "getSandbox", args: (c) => ({ params: { id: c.at("one.0.id") } }), expect: fails("NOT_FOUND") },
  { what: "once", route: "deleteSandbox", args: (c) => ({ params: { id: c.at("one.0.id") } }), expect: fails("NOT_FOUND") },
  { what: "nobody ends everything by mistake", route: "deleteSandboxes", expect: fails("BAD_REQUEST", { usage: true }) },
  {
    what: "everything is ended on request",
    route: "deleteSandboxes",
    args: () => ({ query: { all: true } }),
    expect: (c) => gives(including(c.at("many.0.id"), c.at("each.results.1.sandbox.id"))),
  },
  { what: "nothing runs", route: "listSandboxes", expect: gives([]) },
];

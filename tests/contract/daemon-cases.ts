// Cases for the daemon: probes, settings, tokens, images, events, workspaces.

import { PYTHON_IMAGE } from "../helpers/vm.ts";
import { above, excluding, fails, gives, including, isText, REST_AND_SDK, REST_ONLY, type Case, type Expected } from "./case.ts";

const NO_VERB = REST_AND_SDK("no verb");
const EVENTS = ["sandbox.created", "sandbox.updated", "sandbox.paused", "sandbox.resumed", "sandbox.deleted"];

export const daemonCases: Case[] = [
  { what: "it answers", route: "getHealth", expect: gives({ ok: true }), not: NO_VERB },
  { what: "the daemon accepts work", route: "getReadiness", expect: gives({ ready: true, reason: null }), not: NO_VERB },
  { what: "its version", route: "getVersion", expect: gives({ version: isText, api: "v1" }), not: NO_VERB },
  {
    what: "the gauges of the reference, and more",
    route: "getMetrics",
    expect: gives((text: unknown) =>
      [
        /^forkd_snapshots_total \d+$/m,
        /^forkd_sandboxes_active \d+$/m,
        /^forkd_branches_in_flight 0$/m,
        /^forkd_branch_concurrency_cap 4$/m,
        /^forkd_build_info\{version="[^"]+"\} 1$/m,
      ].every((line) => line.test(String(text))),
    ),
    not: NO_VERB,
  },
  {
    what: "the last hour",
    route: "getHistory",
    expect: gives({ step_secs: 10, bounds_ms: including(1, 5000), samples: Array.isArray }),
    not: NO_VERB,
  },
  {
    what: "a cluster of one node, which holds the snapshot",
    route: "getCluster",
    expect: gives({ nodes: including({ code: /^[a-z2-7]{4}$/, state: "up", url: null, snapshots: including({ tag: "python" }) }) }),
    not: { mcp: "for who runs the daemon" },
  },
  {
    what: "a cordon of a node that is not there",
    route: "updateNode",
    args: () => ({ params: { node: "zzzz" }, body: { cordoned: true } }),
    expect: fails("NOT_FOUND"),
    not: { mcp: "for who runs the daemon" },
  },
  {
    what: "a drain of a node that is not there",
    route: "drainNode",
    args: () => ({ params: { node: "zzzz" } }),
    expect: fails("NOT_FOUND"),
    not: { mcp: "for who runs the daemon" },
  },
  {
    what: "a step of a move by another than a gateway",
    route: "moveSandbox",
    args: () => ({ body: { step: "depart", id: "sb-nothing" } }),
    expect: fails("FORBIDDEN"),
    not: { ...NO_VERB, sdk: "only gateways and nodes use it", python: "only gateways and nodes use it" },
  },
  { what: "its OpenAPI document", route: "getOpenapi", expect: gives({ openapi: /^3\.1/ }), not: NO_VERB },
  {
    what: "its status",
    route: "getStatus",
    expect: gives({
      version: isText,
      pid: above(1),
      home: isText,
      socket: /forkd\.sock$/,
      tls: false,
      accelerator: /^(kvm|tcg)$/,
      confinement: /^(namespaces|none)$/,
      confinement_policy: "preferred",
      isolation_policy: "auto",
      sandbox_limits: { applicable: [], reason: isText },
      engine: /^QEMU /,
      snapshots: above(0),
      images: above(0),
      limits: {
        max_sandboxes: 1e3,
        max_memory_mib: null,
        branch_concurrency: 4,
      },
      memory: { available_mib: above(0) },
    }),
  },
  {
    what: "its settings and their sources",
    route: "getConfig",
    expect: gives({ bind: { source: "option" }, max_sandboxes: { value: 1000, source: "default" }, token_file: { value: null } }),
  },
  { what: "images", route: "listImages", expect: gives(including({ names: including(PYTHON_IMAGE) })) },
  {
    what: "one image",
    route: "getImage",
    args: () => ({ params: { name: PYTHON_IMAGE } }),
    expect: gives({ id: /^sha256:/, names: including(PYTHON_IMAGE), source: { kind: "packages" }, config: { env: {}, user: isText } }),
    save: "image",
  },
  {
    what: "by its id",
    route: "getImage",
    args: (c) => ({ params: { name: c.at("image.id") } }),
    expect: gives({ names: including(PYTHON_IMAGE) }),
  },
  { what: "a missing image", route: "getImage", args: () => ({ params: { name: "no-such-image" } }), expect: fails("NOT_FOUND") },
  {
    what: "an image of the same packages is the same, under another name",
    route: "createImage",
    args: (c) => ({ body: { name: c.name(`image-${process.pid}`), packages: ["python3", "python3-numpy"] } }),
    expect: (c) => gives({ id: c.at("image.id"), names: including(c.name(`image-${process.pid}`)), reused: true }, 201),
  },
  {
    what: "the name goes, the data stays",
    route: "deleteImage",
    args: (c) => ({ params: { name: c.name(`image-${process.pid}`) } }),
    expect: gives(null, 204),
  },
  { what: "no image is no image", route: "deleteImage", args: () => ({ params: { name: "no-such-image" } }), expect: fails("NOT_FOUND") },
  {
    what: "a package that is no name",
    route: "createImage",
    args: () => ({ body: { name: "x", packages: ["; rm -rf /"] } }),
    expect: fails("BAD_REQUEST"),
  },
  {
    what: "a name that is a path",
    route: "createImage",
    args: () => ({ body: { name: "../x", packages: ["python3"] } }),
    expect: fails("BAD_NAME"),
  },
  {
    what: "a release that is no name",
    route: "createImage",
    args: () => ({ body: { name: "x", packages: ["python3"], suite: "a b" } }),
    expect: fails("BAD_REQUEST", { message: () => /suite/ }),
  },
  {
    what: "an archive that is not there",
    route: "createImage",
    args: () => ({ body: { name: "x", file: "/nonexistent/x.tar" } }),
    expect: fails("BAD_REQUEST", { message: () => /nonexistent/ }),
  },
  {
    what: "a file to copy that is not there",
    route: "createImage",
    args: () => ({ body: { name: "x", packages: [], copy: [{ from: "/nonexistent/y", to: "/y" }] } }),
    expect: fails("BAD_REQUEST", { message: () => /nonexistent/ }),
  },
  {
    what: "a path that depends on who reads it",
    route: "createImage",
    args: () => ({ body: { name: "x", file: "x.tar" } }),
    expect: fails("BAD_REQUEST", { message: () => /file: must be absolute/ }),
    not: REST_AND_SDK("`image import` makes it absolute"),
  },

  {
    what: "a sandbox for the journal",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", metadata: { journal: c.driver } } }),
    expect: gives([{ state: "running" }]),
    save: "seen",
  },
  {
    what: "renamed",
    route: "updateSandbox",
    args: (c) => ({ params: { id: c.at("seen.0.id") }, body: { name: c.name("seen") } }),
    expect: gives({ name: isText }),
  },
  { what: "paused", route: "pauseSandbox", args: (c) => ({ params: { id: c.name("seen") } }), expect: gives({ state: "paused" }) },
  { what: "resumed", route: "resumeSandbox", args: (c) => ({ params: { id: c.name("seen") } }), expect: gives({ state: "running" }) },
  { what: "ended", route: "deleteSandbox", args: (c) => ({ params: { id: c.name("seen") } }), expect: gives(null) },
  {
    what: "all of it is in the journal, in order",
    route: "getEvents",
    args: (c) => ({ query: { since: 0, sandbox: c.at("seen.0.id") }, take: EVENTS.length }),
    expect: (c) =>
      gives(
        EVENTS.map((type) => ({ type, sandbox: c.at("seen.0.id"), snapshot: "python", principal: "local", id: above(0), time: isText })),
      ),
    save: "events",
  },
  {
    what: "after an event come the next ones",
    route: "getEvents",
    args: (c) => ({ query: { sandbox: c.at("seen.0.id"), since: Number(c.at("events.1.id")) }, take: 3 }),
    expect: gives(EVENTS.slice(2).map((type) => ({ type }))),
  },
  {
    what: "events with the header of a browser",
    route: "getEvents",
    args: (c) => ({ query: { sandbox: c.at("seen.0.id") }, headers: { "last-event-id": c.at("events.2.id") }, take: 2 }),
    expect: gives(EVENTS.slice(3).map((type) => ({ type }))),
    not: REST_ONLY("a header of reconnections"),
  },
  {
    what: "only some types",
    route: "getEvents",
    args: (c) => ({ query: { since: 0, sandbox: c.at("seen.0.id"), types: "sandbox.paused,sandbox.deleted" }, take: 2 }),
    expect: gives([{ type: "sandbox.paused" }, { type: "sandbox.deleted" }]),
  },
];

const denied = (code: "FORBIDDEN" | "UNAUTHORIZED"): Expected => fails(code);

/** Cases over TCP, which requires a token */
export const tokenCases: Case[] = [
  ...(["read", "exec", "admin", "operator"] as const).map((scope): Case => ({
    what: `a token with scope ${scope}`,
    route: "createToken",
    args: (c) => ({ body: { name: c.name(scope), scope } }),
    expect: (c) =>
      gives({ name: c.name(scope), scope, source: "created", token: /^fkd_.{32,}$/, max_sandboxes: null, last_used_unix: null }, 201),
    save: scope,
  })),
  {
    what: "a name is given once",
    route: "createToken",
    args: (c) => ({ body: { name: c.name("read") } }),
    expect: fails("EXISTS"),
  },
  {
    what: "the daemon's own name is reserved",
    route: "createToken",
    args: () => ({ body: { name: "local" } }),
    expect: fails("BAD_NAME"),
  },
  {
    what: "tokens are listed without their values",
    route: "listTokens",
    expect: (c) => gives(including({ name: c.name("read"), scope: "read", token: undefined }, { name: c.name("admin"), scope: "admin" })),
  },
  {
    what: "a link that logs a browser in, with no more rights than the token",
    route: "createUiLink",
    args: (c) => ({ token: c.at("exec.token"), body: { scope: "read", session_secs: 600 } }),
    expect: gives({ url: /^http:\/\/[^/]+\/ui\/#login=fku_[0-9a-f]{64}$/, scope: "read", session_secs: 600 }, 201),
  },
  {
    what: "no link with more rights than the token",
    route: "createUiLink",
    args: (c) => ({ token: c.at("exec.token"), body: { scope: "admin" } }),
    expect: denied("FORBIDDEN"),
  },
  {
    what: "exec logs no browsers out",
    route: "deleteUiSessions",
    args: (c) => ({ token: c.at("exec.token") }),
    expect: denied("FORBIDDEN"),
  },
  { what: "all browsers are logged out", route: "deleteUiSessions", args: (c) => ({ token: c.at("admin.token") }), expect: gives(null) },
  { what: "without a token", route: "listSandboxes", args: () => ({ token: "" }), expect: denied("UNAUTHORIZED") },
  { what: "probes need none", route: "getHealth", args: () => ({ token: "" }), expect: gives({ ok: true }), not: NO_VERB },
  { what: "read looks", route: "listSandboxes", args: (c) => ({ token: c.at("read.token") }), expect: gives([]) },
  {
    what: "read does not fork",
    route: "createSandboxes",
    args: (c) => ({ token: c.at("read.token"), body: { snapshot_tag: "python" } }),
    expect: denied("FORBIDDEN"),
  },
  {
    what: "exec forks",
    route: "createSandboxes",
    args: (c) => ({ token: c.at("exec.token"), body: { snapshot_tag: "python" } }),
    expect: (c) => gives([{ created_by: c.name("exec") }]),
    save: "byToken",
  },
  {
    what: "read runs nothing",
    route: "execCommand",
    args: (c) => ({ token: c.at("read.token"), params: { id: c.at("byToken.0.id") }, body: { args: ["true"] } }),
    expect: denied("FORBIDDEN"),
  },
  {
    what: "exec runs",
    route: "execCommand",
    args: (c) => ({ token: c.at("exec.token"), params: { id: c.at("byToken.0.id") }, body: { args: ["true"] } }),
    expect: gives({ exit_code: 0 }),
  },
  {
    what: "exec removes no snapshots",
    route: "deleteSnapshot",
    args: (c) => ({ token: c.at("exec.token"), params: { tag: "python" }, query: { force: true } }),
    expect: denied("FORBIDDEN"),
  },
  {
    what: "exec makes no tokens",
    route: "createToken",
    args: (c) => ({ token: c.at("exec.token"), body: { name: "more" } }),
    expect: denied("FORBIDDEN"),
  },
  {
    what: "exec ends",
    route: "deleteSandbox",
    args: (c) => ({ token: c.at("exec.token"), params: { id: c.at("byToken.0.id") } }),
    expect: gives(null),
  },
  ...[{ file: "/etc/passwd" }, { packages: [], copy: [{ from: "/etc", to: "/etc" }] }, { packages: [], mirror: "file:///srv" }].map(
    (source): Case => ({
      what: `admin over the network has no files of the daemon's machine: ${Object.keys(source).join(", ")}`,
      route: "createImage",
      args: (c) => ({ token: c.at("admin.token"), body: { name: "x", ...source } }),
      expect: denied("FORBIDDEN"),
    }),
  ),
  {
    what: "admin does not see the settings",
    route: "getConfig",
    args: (c) => ({ token: c.at("admin.token") }),
    expect: denied("FORBIDDEN"),
  },
  {
    what: "admin makes no operator",
    route: "createToken",
    args: (c) => ({ token: c.at("admin.token"), body: { name: "more", scope: "operator" } }),
    expect: denied("FORBIDDEN"),
  },
  { what: "operator does everything", route: "getConfig", args: (c) => ({ token: c.at("operator.token") }), expect: gives({ bind: {} }) },
  {
    what: "a new value",
    route: "rotateToken",
    args: (c) => ({ params: { name: c.name("read") } }),
    expect: (c) =>
      gives({ name: c.name("read"), scope: "read", token: (value: unknown) => isText(value) && value !== c.get("read.token") }),
    save: "rotated",
  },
  { what: "ends the old one", route: "listSandboxes", args: (c) => ({ token: c.at("read.token") }), expect: denied("UNAUTHORIZED") },
  { what: "the new value is accepted", route: "listSandboxes", args: (c) => ({ token: c.at("rotated.token") }), expect: gives([]) },
  {
    what: "a missing token cannot be rotated",
    route: "rotateToken",
    args: () => ({ params: { name: "nothing" } }),
    expect: fails("NOT_FOUND"),
  },
  ...["read", "exec", "admin", "operator"].map((scope): Case => ({
    what: `${scope} is revoked`,
    route: "deleteToken",
    args: (c) => ({ params: { name: c.name(scope) } }),
    expect: gives(null, 204),
  })),
  {
    what: "a revoked token is refused at once",
    route: "listSandboxes",
    args: (c) => ({ token: c.at("rotated.token") }),
    expect: denied("UNAUTHORIZED"),
  },
  {
    what: "a revoked token is not found",
    route: "deleteToken",
    args: (c) => ({ params: { name: c.name("read") } }),
    expect: fails("NOT_FOUND"),
  },
  { what: "no token remains", route: "listTokens", expect: (c) => gives(excluding({ name: new RegExp(`^${c.driver}-`) })) },
];

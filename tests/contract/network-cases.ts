// Cases for network policies, without connections. tests/e2e/network.test.ts tests connections.

import { fails, gives, type Case } from "./case.ts";

const RULES = ["example.org", "*.example.org:443", "10.1.2.0/24:5432", "[fd00::1]:80,8000-8100"];
const NONE = { mode: "none", allow: [], egress_limit_bytes: null };

function set(what: string, body: Record<string, unknown>, expect: Case["expect"], more: Partial<Case> = {}): Case {
  return { what, route: "setNetwork", args: (c) => ({ params: { id: c.name("one") }, body }), expect, ...more };
}

export const networkCases: Case[] = [
  {
    what: "there is no network unless it is asked for",
    route: "getNetwork",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ ...NONE, connections_open: 0, connections_total: 0, connections_refused: 0, bytes_up: 0, bytes_down: 0, recent: [] }),
  },
  set("rules of all kinds", { mode: "allow", allow: RULES }, gives({ mode: "allow", allow: RULES, egress_limit_bytes: null })),
  {
    what: "the sandbox reports them",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ network: { mode: "allow", allow: RULES, egress_limit_bytes: null } }),
  },
  set(
    "an open one with a limit",
    { mode: "open", allow: ["10.0.0.0/8"], egress_limit_bytes: 1000 },
    gives({ mode: "open", allow: ["10.0.0.0/8"], egress_limit_bytes: 1000, egress_used_bytes: 0 }),
  ),
  set(
    "an open one that leaves out some addresses",
    { mode: "open", deny: ["203.0.113.7", "198.51.100.0/24:25", "2001:db8::/32"] },
    gives({ mode: "open", allow: [], deny: ["203.0.113.7", "198.51.100.0/24:25", "2001:db8::/32"], egress_limit_bytes: null }),
  ),
  set("a name that is denied", { mode: "open", deny: ["example.org"] }, fails("BAD_REQUEST", { message: () => /deny\.0.*only addresses/ })),
  set(
    "a denial that has no effect",
    { mode: "allow", allow: ["example.org"], deny: ["203.0.113.7"] },
    fails("BAD_REQUEST", { message: () => /deny/ }),
  ),
  set(
    "an open one with a limit, once more",
    { mode: "open", allow: ["10.0.0.0/8"], egress_limit_bytes: 1000 },
    gives({ mode: "open", allow: ["10.0.0.0/8"], egress_limit_bytes: 1000, egress_used_bytes: 0 }),
  ),
  set("an invalid rule", { mode: "allow", allow: ["https://example.org"] }, fails("BAD_REQUEST", { message: () => /allow\.0/ })),
  set("rules that have no effect", { mode: "none", allow: ["example.org"] }, fails("BAD_REQUEST", { message: () => /allow/ })),
  set("a mode that there is not", { mode: "some" }, fails("BAD_REQUEST", { usage: true })),
  {
    what: "refused changes have no effect",
    route: "getNetwork",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ mode: "open", allow: ["10.0.0.0/8"], egress_limit_bytes: 1000 }),
  },
  {
    what: "a fork of it has the same",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { n: 1 } }),
    expect: gives({ sandboxes: [{ network: { mode: "open", allow: ["10.0.0.0/8"], egress_limit_bytes: 1000 } }] }),
  },
  {
    what: "a fork can have another policy",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { n: 1, network: { mode: "none" } } }),
    expect: gives({ sandboxes: [{ network: NONE }] }),
  },
  {
    what: "a token that may only use sandboxes",
    route: "createToken",
    args: (c) => ({ body: { name: c.name("net"), scope: "exec" } }),
    expect: gives({ scope: "exec" }),
    save: "token",
  },
  ...[["10.1.0.0/16:5432"], ["example.org", "127.0.0.1:80"], ["169.254.169.254"], ["[fd00::1]:80"]].map((allow): Case => ({
    what: `does not open the host's own network: ${allow.join(" ")}`,
    route: "setNetwork",
    args: (c) => ({ params: { id: c.name("one") }, body: { mode: "allow", allow }, token: c.at("token.token") }),
    expect: fails("FORBIDDEN", { message: () => /not public needs the scope operator/ }),
  })),
  {
    what: "public addresses need no admin",
    route: "setNetwork",
    args: (c) => ({
      params: { id: c.name("one") },
      body: { mode: "allow", allow: ["example.org", "203.0.113.0/24"] },
      token: c.at("token.token"),
    }),
    expect: gives({ mode: "allow", allow: ["example.org", "203.0.113.0/24"] }),
  },
  {
    what: "a new sandbox has the same restriction",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", network: { mode: "allow", allow: ["10.0.0.0/8"] } }, token: c.at("token.token") }),
    expect: fails("FORBIDDEN"),
  },
  { what: "the token goes", route: "deleteToken", args: (c) => ({ params: { name: c.name("net") } }), expect: gives(null) },
  set("off again", { mode: "none" }, gives(NONE)),
  {
    what: "a new one with rules",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", network: { mode: "allow", allow: ["example.org:443"], egress_limit_bytes: 5 } } }),
    expect: gives([{ network: { mode: "allow", allow: ["example.org:443"], egress_limit_bytes: 5 } }]),
  },
  {
    what: "a fork with an invalid rule is refused",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", network: { mode: "allow", allow: ["10.0.0.1/8"] } } }),
    expect: fails("BAD_REQUEST", { message: () => /network\.allow\.0/ }),
  },
  { what: "the network of nothing", route: "getNetwork", args: () => ({ params: { id: "sb-nothing" } }), expect: fails("NOT_FOUND") },
  {
    what: "a missing sandbox has no network policy",
    route: "setNetwork",
    args: () => ({ params: { id: "sb-nothing" }, body: { mode: "open" } }),
    expect: fails("NOT_FOUND"),
  },
];

// Network policy of an unpacked snapshot: none, unless the request asks for one.

import { above, fails, gives, type Case } from "./case.ts";

const POLICY = { mode: "open", allow: ["example.org", "10.0.0.0/8"], egress_limit_bytes: 1000 };
const NO_PACKS = { mcp: "a model has no packs" };

function unpack(what: string, query: Record<string, boolean>, expect: Record<string, unknown>): Case {
  return {
    what,
    route: "unpack",
    args: (c) => ({ query, bytes: c.get("online") as Buffer }),
    expect: (c) => gives({ ...expect, added: [c.at("branch.id")] }, 201),
    not: NO_PACKS,
  };
}

const remove = (what: string): Case => ({
  what,
  route: "deleteSnapshot",
  args: (c) => ({ params: { tag: c.name("online") } }),
  expect: gives(null),
  not: NO_PACKS,
});

export const packNetworkCases: Case[] = [
  {
    what: "a sandbox that may connect",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", name: c.name("online"), network: POLICY } }),
    expect: gives([{ network: POLICY }], 201),
    not: NO_PACKS,
  },
  {
    what: "its branch may, too",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.name("online") }, body: { tag: c.name("online") } }),
    expect: gives({ id: /^sn-/, diff_physical_bytes: above(0) }, 201),
    save: "branch",
    not: NO_PACKS,
  },
  { what: "it ends", route: "deleteSandbox", args: (c) => ({ params: { id: c.name("online") } }), expect: gives(null), not: NO_PACKS },
  {
    what: "a pack that says so",
    route: "readPack",
    args: (c) => ({ params: { tag: c.name("online") }, query: { level: 1, without: "python" } }),
    expect: gives((value: unknown) => Buffer.isBuffer(value)),
    save: "online",
    not: NO_PACKS,
  },
  remove("the branch goes"),
  unpack(
    "a stranger's pack brings no network",
    {},
    {
      snapshot: { network: { mode: "none", allow: [], egress_limit_bytes: null } },
      warnings: [/not signed/, /^Not kept .*any public address, example\.org, 10\.0\.0\.0\/8\./],
    },
  ),
  {
    what: "an existing snapshot keeps its policy",
    route: "unpack",
    args: (c) => ({ query: { keep_network: true }, bytes: c.get("online") as Buffer }),
    expect: gives({ snapshot: { network: { mode: "none" } }, added: [], warnings: [/not signed/, /remove it first/] }, 201),
    not: NO_PACKS,
  },
  remove("the snapshot is removed"),
  unpack(
    "unless it is asked for, and never into private networks",
    { keep_network: true },
    {
      snapshot: { network: { mode: "open", allow: ["example.org"], egress_limit_bytes: 1000 } },
      warnings: [/not signed/, /^Not kept .*: 10\.0\.0\.0\/8\./],
    },
  ),
  remove("the snapshot is removed again"),
  {
    what: "no snapshot remains",
    route: "getSnapshot",
    args: (c) => ({ params: { tag: c.name("online") } }),
    expect: fails("NOT_FOUND"),
  },
];

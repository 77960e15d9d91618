// Cases for chains of snapshots: dependencies, retention and removal.

import { above, excluding, fails, gives, including, type Case } from "./case.ts";

/** A chain: python ← b1 ← b2, with a sandbox of b1 */
export const lineageCases: Case[] = [
  {
    what: "a sandbox to branch",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python" } }),
    expect: gives([{ state: "running" }]),
    save: "root",
  },
  {
    what: "the sandbox gets a state",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("root.0.id") }, body: { code: "depth = 1; depth" } }),
    expect: gives({ value: 1 }),
  },
  {
    what: "a branch builds on its source's snapshot",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.at("root.0.id") }, body: { tag: c.name("b1") } }),
    expect: (c) =>
      gives({ tag: c.name("b1"), depth: 1, parent_tag: "python", branched_from: c.at("root.0.id"), delta_bytes: above(0) }, 201),
    save: "b1",
  },
  {
    what: "a fork of the branch",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: c.name("b1") } }),
    expect: gives([{ state: "running" }]),
    save: "child",
  },
  {
    what: "the fork has the state",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("child.0.id") }, body: { code: "depth += 1; depth" } }),
    expect: gives({ value: 2 }),
  },
  {
    what: "a branch of a branch",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.at("child.0.id") }, body: { tag: c.name("b2") } }),
    expect: (c) => gives({ depth: 2, parent_tag: c.name("b1") }),
    save: "b2",
  },
  {
    what: "the lineage of the middle",
    route: "getSnapshotDetails",
    args: (c) => ({ params: { tag: c.name("b1") } }),
    expect: (c) =>
      gives({ ancestors: ["python"], dependents: [c.name("b2")], sandboxes: [c.at("child.0.id")], parent_tag: "python", chain_depth: 1 }),
  },
  {
    what: "the tree has it all",
    route: "getTree",
    expect: (c) => {
      const b2 = { id: c.at("b2.id"), tag: c.name("b2"), status: "ready", sandboxes: [] };
      const b1 = { tag: c.name("b1"), branched_from: c.at("root.0.id"), sandboxes: [{ id: c.at("child.0.id") }], snapshots: [b2] };
      return gives({ roots: including({ tag: "python", sandboxes: including({ id: c.at("root.0.id") }), snapshots: including(b1) }) });
    },
  },
  {
    what: "the middle stays, and everything that needs it is named",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("b1") } }),
    expect: (c) => {
      const needing = [`snapshot ${c.name("b2")}`, `sandbox ${c.at("child.0.id")}`];
      return fails("IN_USE", { message: () => new RegExp(needing.join(", ")), details: { needed_by: needing } });
    },
  },
  {
    what: "cascade does not end sandboxes",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("b1") }, query: { cascade: true } }),
    expect: fails("IN_USE"),
  },
  {
    what: "cascade and force exclude each other",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("b1") }, query: { cascade: true, force: true } }),
    expect: fails("BAD_REQUEST", { usage: true }),
  },
  {
    what: "a compact copy builds on nothing",
    route: "compactSnapshot",
    args: (c) => ({ params: { tag: c.name("b2") }, body: { to: c.name("flat") } }),
    expect: (c) => gives({ tag: c.name("flat"), depth: 0, parent_tag: null, status: "ready", bootable: true }, 200),
  },
  {
    what: "a compact copy cannot have an existing tag",
    route: "compactSnapshot",
    args: (c) => ({ params: { tag: c.name("b2") }, body: { to: c.name("flat") } }),
    expect: fails("EXISTS"),
  },
  {
    what: "a snapshot cannot be compacted onto itself",
    route: "compactSnapshot",
    args: (c) => ({ params: { tag: c.name("b2") }, body: { to: c.name("b2") } }),
    expect: fails("BAD_REQUEST"),
  },
  {
    what: "a missing snapshot cannot be compacted",
    route: "compactSnapshot",
    args: (c) => ({ params: { tag: "nothing" }, body: { to: c.name("copy") } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "force takes the name away",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("b1") }, query: { force: true } }),
    expect: gives(null),
  },
  {
    what: "the name is gone",
    route: "getSnapshot",
    args: (c) => ({ params: { tag: c.name("b1") } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "its sandbox continues",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("child.0.id") }, body: { code: "depth" } }),
    expect: gives({ value: 2 }),
  },
  {
    what: "the data is kept, without a tag",
    route: "getTree",
    expect: (c) =>
      gives({
        roots: including({ tag: "python", snapshots: including({ id: c.at("b1.id"), tag: null, snapshots: [{ tag: c.name("b2") }] }) }),
      }),
  },
  {
    what: "gc does not remove it",
    route: "collectGarbage",
    args: () => ({ body: { dry_run: true } }),
    expect: (c) => gives({ dry_run: true, removed: excluding({ kind: "snapshot", name: c.name("b1") }) }),
  },
  {
    what: "the collection leaves it alone",
    route: "collectGarbage",
    expect: gives({ dry_run: false, removed: excluding({ kind: "snapshot" }), bytes: above(-1) }),
  },
  {
    what: "its dependents can still be forked",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: c.name("b2") } }),
    expect: gives([{ state: "running" }]),
    save: "tip",
  },
  {
    what: "with all of its state",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("tip.0.id") }, body: { code: "depth" } }),
    expect: gives({ value: 2 }),
  },
  {
    what: "the compact copy can be forked",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: c.name("flat") } }),
    expect: gives([{ state: "running" }]),
    save: "flatTip",
  },
  {
    what: "its fork has the state",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("flatTip.0.id") }, body: { code: "depth" } }),
    expect: gives({ value: 2 }),
  },
  {
    what: "all forks of a snapshot are ended",
    route: "deleteSandboxes",
    args: (c) => ({ query: { tag: c.name("flat") } }),
    expect: (c) => gives([c.at("flatTip.0.id")]),
  },
];

export const removalCases: Case[] = [
  ...["child", "tip"].map((name): Case => ({
    what: `the ${name} of the chain is ended`,
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at(`${name}.0.id`) } }),
    expect: gives(null),
  })),
  {
    what: "the base that has no name is still needed",
    route: "getTree",
    expect: (c) => gives({ roots: including({ tag: "python", snapshots: including({ id: c.at("b1.id"), tag: null }) }) }),
  },
  {
    what: "the last that builds on it is removed",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("b2") } }),
    expect: gives(null),
  },
  {
    what: "its unnamed bases are removed with it",
    route: "getTree",
    expect: (c) => gives({ roots: including({ tag: "python", snapshots: excluding({ id: c.at("b1.id") }) }) }),
  },
  {
    what: "the compact copy stands alone",
    route: "getSnapshotDetails",
    args: (c) => ({ params: { tag: c.name("flat") } }),
    expect: gives({ ancestors: [], dependents: [], sandboxes: [] }),
  },
  {
    what: "a base for a cascade",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.at("root.0.id") }, body: { tag: c.name("b3") } }),
    expect: gives({ status: "ready" }),
  },
  {
    what: "its fork",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: c.name("b3") } }),
    expect: gives([{ state: "running" }]),
    save: "doomed",
  },
  {
    what: "the fork's branch",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.at("doomed.0.id") }, body: { tag: c.name("b4") } }),
    expect: gives({ depth: 2 }),
  },
  {
    what: "the source of the branch is ended",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("doomed.0.id") } }),
    expect: gives(null),
  },
  {
    what: "cascade removes both",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("b3") }, query: { cascade: true } }),
    expect: gives(null),
  },
  {
    what: "only the compact copy is left",
    route: "listSnapshots",
    expect: (c) => gives(excluding({ tag: c.name("b3") }, { tag: c.name("b4") }, { tag: c.name("b2") })),
  },
  {
    what: "the branch is removed",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("flat") } }),
    expect: gives(null),
  },
  {
    what: "no snapshot of this driver remains",
    route: "listSnapshots",
    expect: (c) => gives(excluding({ tag: new RegExp(`^${c.driver}-`) })),
  },
];

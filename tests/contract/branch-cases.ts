// Branches of a running sandbox, and forks of it. All of the sandbox "one".

import { above, excluding, fails, gives, isText, REST_AND_SDK, REST_ONLY, size, within, type Case } from "./case.ts";

export const branchCases: Case[] = [
  {
    what: "state to be branched",
    route: "evalCode",
    args: (c) => ({ params: { id: c.name("one") }, body: { code: "kept = 'before'" } }),
    expect: gives({ exit_code: 0 }),
  },
  ...(["full", "diff", "live"] as const).map((mode): Case => ({
    what: `a branch in mode ${mode}`,
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { tag: c.name(mode), mode, metadata: { mode } } }),
    expect: (c) =>
      gives(
        { tag: c.name(mode), status: "ready", bootable: true, pause_ms: above(0), diff_physical_bytes: above(0), metadata: { mode } },
        201,
      ),
  })),
  {
    what: "the older flags, and a parent that is not its own",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { diff: true, live: false, measure_diff: true, parent_tag: c.name("full") } }),
    expect: gives({ tag: /^br-/, status: "ready", warnings: [/^parent_tag has no effect/] }, 201),
    save: "madeUp",
    not: REST_AND_SDK("`snapshot --from-sandbox` has the flags that mean something"),
  },
  {
    what: "its made-up tag is a tag",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.at("madeUp.tag") } }),
    expect: gives(null),
    not: REST_AND_SDK("follows the case before"),
  },
  {
    what: "a tag that is taken",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { tag: "python" } }),
    expect: fails("EXISTS"),
  },
  { what: "a branch of nothing", route: "branchSandbox", args: () => ({ params: { id: "sb-nothing" } }), expect: fails("NOT_FOUND") },
  {
    what: "an answer before it is complete",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { tag: c.name("soon"), wait: false } }),
    expect: (c) => gives({ tag: c.name("soon"), status: "writing", bootable: false, pause_ms: above(0) }, 202),
  },
  {
    what: "which it is soon",
    route: "getSnapshot",
    args: (c) => ({ params: { tag: c.name("soon") } }),
    expect: gives({ status: "ready", bootable: true, delta_bytes: above(0) }),
    until: true,
  },
  {
    what: "the source counts its branches",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.name("one") } }),
    expect: gives({ has_branched: true, branch_count: above(3), last_branch_memory_path: isText }),
  },
  {
    what: "the source goes on",
    route: "evalCode",
    args: (c) => ({ params: { id: c.name("one") }, body: { code: "kept = 'after'" } }),
    expect: gives({ exit_code: 0 }),
  },
  {
    what: "a fork of the branch",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: c.name("soon"), metadata: { who: c.driver } } }),
    expect: gives([{ state: "running" }]),
    save: "soon",
  },
  {
    what: "is from before",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("soon.0.id") }, body: { code: "kept" } }),
    expect: gives({ value: "before", result: "'before'" }),
  },
  {
    what: "and has the environment of its source",
    route: "execCommand",
    args: (c) => ({ params: { id: c.at("soon.0.id") }, body: { args: ["sh", "-c", "echo $MODE"] } }),
    expect: gives({ stdout: "contract\n" }),
  },
  {
    what: "a running sandbox is forked",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { n: 2, metadata: { who: c.driver, kind: "tip" }, ttl_secs: 600 } }),
    expect: gives({ snapshot: { ephemeral: true }, sandboxes: [{ expires_at_unix: within(600) }, { state: "running" }] }, 201),
    save: "tips",
  },
  {
    what: "with its state of now",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("tips.sandboxes.1.id") }, body: { code: "kept" } }),
    expect: gives({ value: "after" }),
  },
  {
    what: "the forks are ended with their snapshot",
    route: "deleteSandboxes",
    args: (c) => ({ query: { tag: c.at("tips.snapshot.tag") } }),
    expect: gives(size(2)),
  },
  {
    what: "which goes by itself",
    route: "listSnapshots",
    expect: (c) => gives(excluding({ tag: c.at("tips.snapshot.tag") })),
    until: true,
  },
  {
    what: "with a tag it stays",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { tag: c.name("kept") } }),
    expect: (c) => gives({ snapshot: { ephemeral: false, tag: c.name("kept") }, sandboxes: [{ snapshot_tag: c.name("kept") }] }),
    save: "kept",
  },
  {
    what: "also when its fork is gone",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("kept.sandboxes.0.id") } }),
    expect: gives(null),
  },
  {
    what: "until it is removed",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("kept") } }),
    expect: gives(null),
  },
  {
    what: "a fork of a running one to a tag that is taken makes nothing",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { tag: "python" } }),
    expect: fails("EXISTS"),
  },
  {
    what: "older clients send both forms of the mode",
    route: "branchSandbox",
    args: (c) => ({ params: { id: c.name("one") }, body: { tag: c.name("legacy"), mode: "live", live: true, wait: true } }),
    expect: gives({ status: "ready" }, 201),
    not: REST_ONLY("a form of old requests"),
  },
  {
    what: "and get what they asked for",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("legacy") } }),
    expect: gives(null),
    not: REST_ONLY("a form of old requests"),
  },
  {
    what: "the fork of the branch is ended",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("soon.0.id") } }),
    expect: gives(null),
  },
  ...["full", "diff", "live", "soon"].map((tag): Case => ({
    what: `the branch ${tag} is removed`,
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name(tag) } }),
    expect: gives(null),
  })),
];

// Cases for workspaces: three rounds of suspend and resume with a growing state.

import { above, excluding, fails, gives, including, REST_AND_SDK, type Case } from "./case.ts";

const ROUNDS = [1, 2, 3];

export const workspaceCases: Case[] = [
  {
    what: "a workspace is made",
    route: "createWorkspace",
    args: (c) => ({ body: { name: c.name("ws"), snapshot_tag: "python", per_child_netns: true, memory_limit_mib: 256 } }),
    expect: (c) =>
      gives(
        {
          id: /^ws-/,
          name: c.name("ws"),
          source_snapshot_tag: "python",
          current_state_tag: null,
          status: "running",
          live_sandbox_id: /^sb-/,
          created_at_unix: above(1e9),
          warnings: [/^per_child_netns has no effect/],
        },
        201,
      ),
    save: "ws0",
  },
  {
    what: "its sandbox has the limit",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.at("ws0.live_sandbox_id") } }),
    expect: (c) => gives({ memory_limit_mib: 256, metadata: { workspace: c.name("ws") } }),
  },
  {
    what: "a name is given once",
    route: "createWorkspace",
    args: (c) => ({ body: { name: c.name("ws"), snapshot_tag: "python" } }),
    expect: fails("EXISTS"),
  },
  {
    what: "a workspace of a missing snapshot",
    route: "createWorkspace",
    args: (c) => ({ body: { name: c.name("ws2"), snapshot_tag: "nothing" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "a limit that cannot be kept is refused",
    route: "createWorkspace",
    args: (c) => ({ body: { name: c.name("ws2"), snapshot_tag: "python", memory_limit_mib: 100, cpu_limit: 2 } }),
    expect: fails("LIMIT_UNAVAILABLE", { message: () => /memory_limit_mib, cpu_limit/ }),
  },
  { what: "only one was made", route: "listWorkspaces", expect: (c) => gives([{ name: c.name("ws"), status: "running" }]) },
  {
    what: "one workspace",
    route: "getWorkspace",
    args: (c) => ({ params: { name: c.name("ws") } }),
    expect: (c) => gives({ id: c.at("ws0.id"), status: "running" }),
    not: REST_AND_SDK("`workspace list` has it"),
  },
  {
    what: "a missing workspace",
    route: "getWorkspace",
    args: () => ({ params: { name: "nothing" } }),
    expect: fails("NOT_FOUND"),
    not: REST_AND_SDK("`workspace list` has it"),
  },
  {
    what: "one that runs is not resumed",
    route: "resumeWorkspace",
    args: (c) => ({ params: { name: c.name("ws") } }),
    expect: fails("BAD_REQUEST"),
  },
  {
    what: "state in its sandbox",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("ws0.live_sandbox_id") }, body: { code: "rounds = []" } }),
    expect: gives({ exit_code: 0 }),
  },
  ...ROUNDS.flatMap((round): Case[] => [
    {
      what: `round ${round} begins`,
      route: "evalCode",
      args: (c) => ({ params: { id: c.at(`ws${round - 1}.live_sandbox_id`) }, body: { code: `rounds.append(${round}); len(rounds)` } }),
      expect: gives({ value: round }),
    },
    {
      what: `round ${round} is suspended`,
      route: "suspendWorkspace",
      args: (c) => ({ params: { name: c.name("ws") }, ...(round === 2 ? { body: { diff: true } } : {}) }),
      expect: (c) => gives({ status: "suspended", live_sandbox_id: null, current_state_tag: new RegExp(`^ws-${c.name("ws")}-state`) }),
    },
    {
      what: `round ${round} has no sandbox`,
      route: "getSandbox",
      args: (c) => ({ params: { id: c.at(`ws${round - 1}.live_sandbox_id`) } }),
      expect: fails("NOT_FOUND"),
    },
    {
      what: `round ${round} cannot be suspended twice`,
      route: "suspendWorkspace",
      args: (c) => ({ params: { name: c.name("ws") } }),
      expect: fails("BAD_REQUEST"),
    },
    {
      what: `round ${round} is resumed`,
      route: "resumeWorkspace",
      args: (c) => ({ params: { name: c.name("ws") } }),
      expect: gives({ status: "running", live_sandbox_id: /^sb-/ }),
      save: `ws${round}`,
    },
    {
      what: `round ${round} has all of its state`,
      route: "evalCode",
      args: (c) => ({ params: { id: c.at(`ws${round}.live_sandbox_id`) }, body: { code: "rounds" } }),
      expect: gives({ value: ROUNDS.slice(0, round) }),
    },
    {
      what: `round ${round} has one saved state`,
      route: "listSnapshots",
      expect: (c) =>
        gives((all: unknown) => (all as { tag: string }[]).filter(({ tag }) => tag.startsWith(`ws-${c.name("ws")}-state`)).length === 1),
    },
  ]),
  {
    what: "it still has the limit it was made with",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.at("ws3.live_sandbox_id") } }),
    expect: (c) => gives({ memory_limit_mib: 256, metadata: { workspace: c.name("ws") }, warnings: c.get("ws0.warnings") }),
  },
  {
    what: "a saved state is needed",
    route: "listSnapshots",
    expect: (c) => gives(including({ tag: c.at("ws3.current_state_tag") })),
  },
  {
    what: "the workspace stays",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.at("ws3.current_state_tag") } }),
    expect: (c) => fails("IN_USE", { message: () => new RegExp(`workspace ${c.name("ws")}`) }),
  },
  {
    what: "the workspace is deleted",
    route: "deleteWorkspace",
    args: (c) => ({ params: { name: c.name("ws") } }),
    expect: gives(null, 204),
  },
  { what: "with its state", route: "listSnapshots", expect: (c) => gives(excluding({ tag: new RegExp(`^ws-${c.name("ws")}`) })) },
  { what: "the workspace's sandbox has ended", route: "listSandboxes", expect: gives([]) },
  {
    what: "a deleted workspace is not found",
    route: "deleteWorkspace",
    args: (c) => ({ params: { name: c.name("ws") } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "a missing workspace cannot be suspended",
    route: "suspendWorkspace",
    args: () => ({ params: { name: "nothing" } }),
    expect: fails("NOT_FOUND"),
  },
];

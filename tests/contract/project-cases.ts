// Cases for projects: what one owns does not exist for another, and its quotas hold.

import { above, excluding, exactly, fails, gives, including, REST_AND_SDK, type Case } from "./case.ts";

/** Of a new token of the other project */
const asMember = (c: { at: (path: string) => string }): { token: string } => ({ token: c.at("member.token") });

export const projectCases: Case[] = [
  {
    what: "a project with a quota",
    route: "createProject",
    args: (c) => ({ body: { name: c.name("team"), sandboxes: 1, snapshots: 5 } }),
    expect: (c) => gives({ name: c.name("team"), quota: { sandboxes: 1, snapshots: 5, vcpus: null } }, 201),
  },
  { what: "a name is given once", route: "createProject", args: (c) => ({ body: { name: c.name("team") } }), expect: fails("EXISTS") },
  {
    what: "projects are listed, with the one that is always there",
    route: "listProjects",
    expect: (c) => gives(including({ name: "default" }, { name: c.name("team"), quota: { sandboxes: 1 } })),
  },
  {
    what: "a quota is changed, and the others stay",
    route: "updateProject",
    args: (c) => ({ params: { name: c.name("team") }, body: { snapshots: null, forks_per_minute: 100 } }),
    expect: gives({ quota: { sandboxes: 1, snapshots: null, forks_per_minute: 100 } }),
  },
  {
    what: "a missing project has no quota",
    route: "updateProject",
    args: () => ({ params: { name: "nothing" }, body: { sandboxes: 1 } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "a token of the project",
    route: "createToken",
    args: (c) => ({ body: { name: c.name("member"), project: c.name("team"), scope: "admin", expires_in_secs: 3600 } }),
    expect: (c) => gives({ name: c.name("member"), project: c.name("team"), scope: "admin", expires_at_unix: above(0) }, 201),
    save: "member",
  },
  {
    what: "a token of a project that does not exist",
    route: "createToken",
    args: () => ({ body: { name: "x", project: "nothing" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "its use of the quota",
    route: "getQuota",
    args: asMember,
    expect: (c) => gives({ project: c.name("team"), limits: { sandboxes: 1 }, used: { sandboxes: 0, snapshots: 0 } }),
  },
  { what: "a snapshot of another project is not listed", route: "listSnapshots", args: asMember, expect: gives([]) },
  {
    what: "and does not exist",
    route: "getSnapshot",
    args: (c) => ({ ...asMember(c), params: { tag: "python" } }),
    expect: fails("NOT_FOUND", { message: () => /^There is no snapshot python\.$/ }),
    not: REST_AND_SDK("`snapshot info` asks for the details"),
  },
  {
    what: "a private snapshot cannot be forked by its full name",
    route: "createSandboxes",
    args: (c) => ({ ...asMember(c), body: { snapshot_tag: "default/python" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "its owner makes it public",
    route: "updateSnapshot",
    args: () => ({ params: { tag: "python" }, body: { visibility: "public" } }),
    expect: gives({ tag: "python", visibility: "public", project: "default" }),
    not: REST_AND_SDK("--visibility is for new snapshots"),
  },
  {
    what: "then it can be forked",
    route: "createSandboxes",
    args: (c) => ({ ...asMember(c), body: { snapshot_tag: "default/python", name: c.name("theirs") } }),
    expect: (c) =>
      gives([{ project: c.name("team"), snapshot_tag: "default/python", created_by: `${c.name("team")}/${c.name("member")}` }]),
    save: "theirs",
    not: REST_AND_SDK("follows the case before"),
  },
  {
    what: "up to the quota",
    route: "createSandboxes",
    args: (c) => ({ ...asMember(c), body: { snapshot_tag: "default/python" } }),
    expect: (c) =>
      fails("QUOTA_EXCEEDED", {
        details: { project: c.name("team"), quota: "sandboxes", limit: 1, used: 1 },
        message: () => /running sandboxes/,
      }),
    not: REST_AND_SDK("follows the case before"),
  },
  {
    what: "it cannot be removed by others",
    route: "deleteSnapshot",
    args: (c) => ({ ...asMember(c), params: { tag: "python" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "their sandbox does not exist for its owner",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.at("theirs.0.id") } }),
    expect: fails("NOT_FOUND"),
    not: REST_AND_SDK("follows the case before"),
  },
  { what: "and is not listed", route: "listSandboxes", expect: (c) => gives(excluding({ name: c.name("theirs") })) },
  {
    what: "a project that owns something stays",
    route: "deleteProject",
    args: (c) => ({ params: { name: c.name("team") } }),
    expect: fails("IN_USE", { message: () => /it owns .*1 tokens/ }),
  },
  {
    what: "the sandbox is ended",
    route: "deleteSandbox",
    args: (c) => ({ ...asMember(c), params: { id: c.name("theirs") } }),
    expect: gives(null),
    not: REST_AND_SDK("follows the case before"),
  },
  {
    what: "the snapshot is private again",
    route: "updateSnapshot",
    args: () => ({ params: { tag: "python" }, body: { visibility: "private" } }),
    expect: gives({ visibility: "private" }),
    not: REST_AND_SDK("follows the case before"),
  },
  {
    what: "an admin sees the tokens of the project only",
    route: "listTokens",
    args: asMember,
    expect: (c) => gives(exactly({ name: c.name("member") })),
  },
  { what: "and no projects", route: "listProjects", args: asMember, expect: fails("FORBIDDEN") },
  {
    what: "the token of a project is revoked in it",
    route: "deleteToken",
    args: (c) => ({ ...asMember(c), params: { name: c.name("member") } }),
    expect: gives(null),
  },
  { what: "an empty project is removed", route: "deleteProject", args: (c) => ({ params: { name: c.name("team") } }), expect: gives(null) },
  { what: "the default one is not", route: "deleteProject", args: () => ({ params: { name: "default" } }), expect: fails("BAD_REQUEST") },
];

// Cases for host folders shared with a sandbox.

import { resolve } from "node:path";
import { fails, gives, type Case } from "./case.ts";

const SHARES = [{ source: resolve(import.meta.dirname, "..", "..", "docs"), target: "/mnt/docs" }];

export const shareCases: Case[] = [
  {
    what: "a fork that sees a folder",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: "python", name: c.name("shared"), shares: SHARES } }),
    expect: gives([{ shares: SHARES, warnings: [] }], 201),
    save: "shared",
  },
  {
    what: "reads it",
    route: "execCommand",
    args: (c) => ({ params: { id: c.name("shared") }, body: { args: ["head", "-1", "/mnt/docs/shares.md"] } }),
    expect: gives({ exit_code: 0, stdout: "# Shares\n" }),
  },
  {
    what: "the share is listed",
    route: "getSandbox",
    args: (c) => ({ params: { id: c.name("shared") } }),
    expect: gives({ shares: SHARES }),
  },
  {
    what: "its forks see it, too",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("shared") }, body: {} }),
    expect: gives({ sandboxes: [{ shares: SHARES }] }),
    save: "sharedTip",
  },
  {
    what: "a fork can have no shares",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("shared") }, body: { shares: [] } }),
    expect: gives({ sandboxes: [{ shares: [] }] }),
    save: "bareTip",
  },
  {
    what: "a folder that does not exist",
    route: "createSandboxes",
    args: () => ({ body: { snapshot_tag: "python", shares: [{ source: "/nowhere", target: "/mnt" }] } }),
    expect: fails("SHARE_FAILED", { message: () => /\/nowhere: it does not exist/ }),
  },
  {
    what: "a place that the guest needs",
    route: "forkSandbox",
    args: (c) => ({ params: { id: c.name("shared") }, body: { shares: [{ source: SHARES[0]?.source, target: "/proc" }] } }),
    expect: fails("SHARE_FAILED"),
  },
  ...["shared.0", "sharedTip.sandboxes.0", "bareTip.sandboxes.0"].map((path): Case => ({
    what: `the end of ${path}`,
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at(`${path}.id`) } }),
    expect: gives(null),
  })),
];

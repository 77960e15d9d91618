// Branches: snapshots of running sandboxes.

import * as z from "zod";
import { bySandbox, metadata, name, NO_EFFECT } from "./common.ts";
import { forkSandbox, sandboxInfo } from "./sandbox.ts";
import { description, snapshotAccess, snapshotInfo } from "./snapshot.ts";
import type { Route } from "./route.ts";

const branchRequest = z
  .strictObject({
    tag: name.optional().meta({ description: "Without it, one is generated" }),
    mode: z.enum(["full", "diff", "live"]).optional().meta({ description: "All three have the same effect: a short pause and a delta" }),
    diff: z.boolean().optional().meta({ description: NO_EFFECT }),
    live: z.boolean().optional().meta({ description: NO_EFFECT }),
    measure_diff: z.boolean().optional().meta({ description: NO_EFFECT }),
    wait: z.boolean().default(true).meta({ description: "false: answer 202 as soon as the source runs again" }),
    hold: z.boolean().optional().meta({
      description:
        "Freezes the processes of the source a little longer than the pause, and in forks of the snapshot until clock and randomness are the fork's own",
    }),
    parent_tag: name.optional().meta({ description: NO_EFFECT }),
    metadata: metadata.optional(),
    description: description.optional(),
    ...snapshotAccess,
  })
  .refine(({ mode, diff }) => mode === undefined || !diff, { path: ["mode"], message: "excludes diff, its older form: give one of them" })
  .meta({ id: "Branch" });

const forkedSandboxes = z.strictObject({ snapshot: snapshotInfo, sandboxes: z.array(sandboxInfo) }).meta({ id: "ForkedSandboxes" });

export const branchRoutes = {
  branchSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/branch",
    scope: "exec",
    summary: "Takes a snapshot of a running sandbox, which continues",
    params: bySandbox,
    body: branchRequest,
    responses: { 201: snapshotInfo, 202: snapshotInfo },
  },
  forkSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/fork",
    scope: "exec",
    summary: "Branches a running sandbox and forks the branch in one call",
    params: bySandbox,
    body: forkSandbox,
    responses: { 201: forkedSandboxes },
  },
} as const satisfies Record<string, Route>;

export type BranchRequest = z.infer<typeof branchRequest>;
export type ForkedSandboxes = z.infer<typeof forkedSandboxes>;

// Workspaces: a sandbox with a name that can sleep and go on.

import * as z from "zod";
import { name, plumbing, unixSeconds, warnings } from "./common.ts";
import { limits } from "./sandbox.ts";

export const workspaceInfo = z
  .strictObject({
    id: z.string(),
    name: z.string(),
    source_snapshot_tag: z.string(),
    current_state_tag: z.string().nullable(),
    status: z.enum(["running", "suspended", "stale"]).meta({ description: "stale: its sandbox is gone and it was never suspended" }),
    live_sandbox_id: z.string().nullable(),
    created_at_unix: unixSeconds,
    last_active_unix: unixSeconds,
    last_branch_memory_path: z.string().nullable(),
    warnings,
  })
  .meta({ id: "Workspace" });

export const createWorkspace = z
  .strictObject({
    name,
    snapshot_tag: name,
    per_child_netns: plumbing.per_child_netns,
    ...limits,
  })
  .meta({ id: "CreateWorkspace" });

export const suspendWorkspace = z.strictObject({ diff: z.boolean().optional() }).meta({ id: "SuspendWorkspace" });

export type WorkspaceInfo = z.infer<typeof workspaceInfo>;
export type CreateWorkspace = z.infer<typeof createWorkspace>;

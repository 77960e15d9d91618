// Workspaces: named sandboxes that can be suspended and resumed.

import * as z from "zod";
import { legacyFields, name, NO_EFFECT, reference, unixSeconds, warnings } from "./common.ts";
import { limits } from "./sandbox.ts";
import type { Route } from "./route.ts";

const workspaceInfo = z
  .strictObject({
    id: z.string(),
    project: z.string(),
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

const createWorkspace = z
  .strictObject({
    name,
    snapshot_tag: reference,
    per_child_netns: legacyFields.per_child_netns,
    ...limits,
  })
  .meta({ id: "CreateWorkspace" });

const suspendWorkspace = z.strictObject({ diff: z.boolean().optional().meta({ description: NO_EFFECT }) }).meta({ id: "SuspendWorkspace" });

const byName = z.strictObject({ name });

export const workspaceRoutes = {
  listWorkspaces: {
    method: "GET",
    path: "/v1/workspaces",
    scope: "read",
    summary: "Workspaces",
    responses: { 200: z.array(workspaceInfo) },
    acrossProjects: true,
  },
  createWorkspace: {
    method: "POST",
    path: "/v1/workspaces",
    scope: "exec",
    summary: "Forks a snapshot under a name that outlives its sandbox",
    body: createWorkspace,
    responses: { 201: workspaceInfo },
  },
  getWorkspace: {
    method: "GET",
    path: "/v1/workspaces/:name",
    scope: "read",
    summary: "One workspace",
    params: byName,
    responses: { 200: workspaceInfo },
  },
  deleteWorkspace: {
    method: "DELETE",
    path: "/v1/workspaces/:name",
    scope: "exec",
    summary: "Ends a workspace with its sandbox and its saved state",
    params: byName,
    responses: { 204: "empty" },
  },
  suspendWorkspace: {
    method: "POST",
    path: "/v1/workspaces/:name/suspend",
    scope: "exec",
    summary: "Saves the state of a workspace and ends its sandbox",
    params: byName,
    body: suspendWorkspace,
    responses: { 200: workspaceInfo },
  },
  resumeWorkspace: {
    method: "POST",
    path: "/v1/workspaces/:name/resume",
    scope: "exec",
    summary: "Resumes a workspace from its saved state",
    params: byName,
    responses: { 200: workspaceInfo },
  },
} as const satisfies Record<string, Route>;

export type WorkspaceInfo = z.infer<typeof workspaceInfo>;
export type CreateWorkspace = z.infer<typeof createWorkspace>;

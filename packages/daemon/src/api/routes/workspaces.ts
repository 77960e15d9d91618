// Routes of workspaces.

import * as z from "zod";
import { name } from "../common.ts";
import * as workspace from "../workspace.ts";
import type { Route } from "../route.ts";

const byName = z.strictObject({ name });

export const workspaceRoutes = {
  listWorkspaces: {
    method: "GET",
    path: "/v1/workspaces",
    scope: "read",
    summary: "Workspaces",
    responses: { 200: z.array(workspace.workspaceInfo) },
  },
  createWorkspace: {
    method: "POST",
    path: "/v1/workspaces",
    scope: "exec",
    summary: "Forks a snapshot under a name that outlives the sandbox",
    body: workspace.createWorkspace,
    responses: { 201: workspace.workspaceInfo },
  },
  getWorkspace: {
    method: "GET",
    path: "/v1/workspaces/:name",
    scope: "read",
    summary: "One workspace",
    params: byName,
    responses: { 200: workspace.workspaceInfo },
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
    summary: "Saves its state and ends its sandbox",
    params: byName,
    body: workspace.suspendWorkspace,
    responses: { 200: workspace.workspaceInfo },
  },
  resumeWorkspace: {
    method: "POST",
    path: "/v1/workspaces/:name/resume",
    scope: "exec",
    summary: "Goes on from the saved state",
    params: byName,
    responses: { 200: workspace.workspaceInfo },
  },
} as const satisfies Record<string, Route>;

// Projects and their quotas.

import * as z from "zod";
import { name, unixSeconds } from "./common.ts";
import type { Route } from "./route.ts";

const count = z.int().min(0).max(Number.MAX_SAFE_INTEGER).nullable();

/** null: no limit */
const quota = z
  .strictObject({
    sandboxes: count.meta({ description: "Sandboxes that run or are paused" }),
    suspended: count.meta({ description: "Suspended sandboxes" }),
    vcpus: count.meta({ description: "CPUs of running and paused sandboxes" }),
    memory_mib: count.meta({ description: "Memory of running and paused sandboxes" }),
    snapshots: count.meta({ description: "Snapshots, without those that are removed when nothing needs them" }),
    storage_bytes: count.meta({ description: "Disk space of its snapshots, of saved states and of the disks of its sandboxes" }),
    forks_per_minute: count.meta({ description: "Sandboxes that are forked or resumed in a minute" }),
    egress_bytes: count.meta({ description: "Bytes that leave its sandboxes in a calendar month (UTC)" }),
    requests_per_second: count.meta({ description: "Requests in a second, without those of operators" }),
  })
  .meta({ id: "Quota", description: "Limits of a project; null: no limit" });

const projectInfo = z.strictObject({ name: z.string(), quota, created_at_unix: unixSeconds }).meta({ id: "Project" });

const createProject = z
  .strictObject({ name: name.meta({ description: "Name of the new project" }), ...quota.partial().shape })
  .meta({ id: "CreateProject" });

/** The given limits change, the others stay */
const updateProject = z.strictObject(quota.partial().shape).meta({ id: "UpdateProject" });

export const quotaUsed = z
  .strictObject(Object.fromEntries(Object.keys(quota.shape).map((key) => [key, z.int()])) as Record<keyof Quota, z.ZodInt>)
  .meta({ id: "QuotaUsed", description: "What counts against the limits now" });

const quotaUse = z
  .strictObject({
    project: z.string(),
    limits: quota,
    used: quotaUsed,
  })
  .meta({ id: "QuotaUse" });

const byName = z.strictObject({ name });

export const projectRoutes = {
  listProjects: {
    method: "GET",
    path: "/v1/projects",
    scope: "operator",
    summary: "Projects and their limits",
    responses: { 200: z.array(projectInfo) },
  },
  createProject: {
    method: "POST",
    path: "/v1/projects",
    scope: "operator",
    summary: "Creates a project",
    body: createProject,
    responses: { 201: projectInfo },
  },
  updateProject: {
    method: "PATCH",
    path: "/v1/projects/:name",
    scope: "operator",
    summary: "Changes the limits of a project",
    params: byName,
    body: updateProject,
    responses: { 200: projectInfo },
  },
  deleteProject: {
    method: "DELETE",
    path: "/v1/projects/:name",
    scope: "operator",
    summary: "Removes a project that owns nothing; 409 lists what it owns",
    params: byName,
    responses: { 204: "empty" },
  },
  getQuota: {
    method: "GET",
    path: "/v1/quota",
    scope: "read",
    summary: "Limits of the project, and how much of them is used",
    responses: { 200: quotaUse },
  },
} as const satisfies Record<string, Route>;

export type Quota = z.infer<typeof quota>;
export type QuotaUse = z.infer<typeof quotaUse>;
export type ProjectInfo = z.infer<typeof projectInfo>;
export type CreateProject = z.infer<typeof createProject>;
export type UpdateProject = z.infer<typeof updateProject>;

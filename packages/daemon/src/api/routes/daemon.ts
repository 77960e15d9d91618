// Routes of the daemon itself.

import * as z from "zod";
import { name } from "../common.ts";
import * as daemon from "../daemon.ts";
import { sandboxStats } from "../sandbox.ts";
import { tree } from "../snapshot.ts";
import type { Route } from "../route.ts";

const byName = z.strictObject({ name });

export const daemonRoutes = {
  getHealth: { method: "GET", path: "/healthz", scope: "none", summary: "Whether the daemon answers", responses: { 200: daemon.health } },
  getReadiness: {
    method: "GET",
    path: "/readyz",
    scope: "none",
    summary: "Whether it takes work: 503 while it starts and stops",
    responses: { 200: daemon.readiness, 503: daemon.readiness },
  },
  getVersion: { method: "GET", path: "/version", scope: "read", summary: "Version", responses: { 200: daemon.version } },
  getMetrics: { method: "GET", path: "/metrics", scope: "read", summary: "Metrics for Prometheus", responses: { 200: "text" } },
  getOpenapi: {
    method: "GET",
    path: "/v1/openapi.json",
    scope: "read",
    summary: "This document",
    responses: { 200: z.looseObject({ openapi: z.string() }) },
  },

  getStatus: { method: "GET", path: "/v1/status", scope: "read", summary: "The daemon and its host", responses: { 200: daemon.status } },
  getConfig: {
    method: "GET",
    path: "/v1/config",
    scope: "admin",
    summary: "Settings and where each comes from",
    responses: { 200: daemon.config },
  },
  stopDaemon: {
    method: "POST",
    path: "/v1/stop",
    scope: "admin",
    summary: "Stops the daemon once all requests are answered; sandboxes go on unless asked otherwise",
    body: daemon.stop,
    responses: { 202: "empty" },
  },
  collectGarbage: {
    method: "POST",
    path: "/v1/gc",
    scope: "admin",
    summary: "Removes what nothing refers to",
    body: daemon.gcRequest,
    responses: { 200: daemon.gcResult },
  },
  getEvents: {
    method: "GET",
    path: "/v1/events",
    scope: "read",
    summary: "Every change of state, as server-sent events",
    query: daemon.eventsQuery,
    responses: { 200: "events" },
    events: daemon.event,
  },
  getTree: {
    method: "GET",
    path: "/v1/tree",
    scope: "read",
    summary: "The lineage of snapshots and sandboxes",
    responses: { 200: tree },
  },
  getStats: {
    method: "GET",
    path: "/v1/stats",
    scope: "read",
    summary: "What every live sandbox uses",
    responses: { 200: z.array(sandboxStats) },
  },

  listTokens: { method: "GET", path: "/v1/tokens", scope: "admin", summary: "Tokens", responses: { 200: z.array(daemon.tokenInfo) } },
  createToken: {
    method: "POST",
    path: "/v1/tokens",
    scope: "admin",
    summary: "Makes a token and shows it once",
    body: daemon.createToken,
    responses: { 201: daemon.newToken },
  },
  rotateToken: {
    method: "POST",
    path: "/v1/tokens/:name/rotate",
    scope: "admin",
    summary: "Gives a token a new value; the old one ends at once",
    params: byName,
    responses: { 200: daemon.newToken },
  },
  deleteToken: {
    method: "DELETE",
    path: "/v1/tokens/:name",
    scope: "admin",
    summary: "Revokes a token",
    params: byName,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

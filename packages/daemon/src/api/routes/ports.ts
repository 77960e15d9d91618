// Routes to servers inside a sandbox.

import * as z from "zod";
import { name } from "../common.ts";
import * as ports from "../ports.ts";
import type { Route } from "../route.ts";

export const portRoutes = {
  listPorts: {
    method: "GET",
    path: "/v1/sandboxes/:id/ports",
    scope: "exec",
    summary: "TCP ports that something listens on now",
    params: z.strictObject({ id: name.meta({ description: "Id or name of a sandbox" }) }),
    responses: { 200: z.array(ports.portInfo) },
  },
  createPreview: {
    method: "POST",
    path: "/v1/sandboxes/:id/ports/:port/preview",
    scope: "exec",
    summary: "A link that opens a server in a browser until it expires",
    params: ports.byPort,
    body: ports.createPreview,
    responses: { 201: ports.preview },
  },
  connectPort: {
    method: "GET",
    path: "/v1/sandboxes/:id/ports/:port/connect",
    scope: "exec",
    summary: "A TCP connection to a server, with Upgrade: tcp",
    params: ports.byPort,
    responses: { 101: "upgrade" },
  },
  proxyRequest: {
    method: "ALL",
    path: "/v1/sandboxes/:id/proxy/:port/*",
    scope: "exec",
    summary: "Any HTTP request to a server, streamed both ways; also upgrades such as WebSocket",
    params: ports.byPort,
    body: "bytes",
    responses: { 101: "upgrade", 200: "any" },
  },
} as const satisfies Record<string, Route>;

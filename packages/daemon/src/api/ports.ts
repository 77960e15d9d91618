// Servers inside a sandbox: what listens, and links to it.

import * as z from "zod";
import { bySandbox, sandboxId, unixSeconds } from "./common.ts";
import type { Route } from "./route.ts";

const MAX_PREVIEW_SECS = 7 * 24 * 3600;

export const byPort = z.strictObject({
  id: sandboxId,
  port: z.coerce.number().int().min(1).max(65_535).meta({ description: "Port inside the guest" }),
});

const portInfo = z
  .strictObject({
    port: z.int(),
    address: z.string().meta({ description: "IP address inside the guest; 0.0.0.0 and :: are all of them" }),
    family: z.enum(["ipv4", "ipv6"]),
    protocol: z.literal("tcp"),
    process: z
      .strictObject({ pid: z.int(), name: z.string() })
      .nullable()
      .meta({ description: "The first process that has it open, where it could be found" }),
  })
  .meta({ id: "Port" });

const createPreview = z
  .strictObject({ expires_in_secs: z.int().min(1).max(MAX_PREVIEW_SECS).default(3600).meta({ description: "At most 7 days" }) })
  .meta({ id: "CreatePreview" });

const preview = z
  .strictObject({
    url: z.string().meta({ description: "Opens the server in a browser, without another token" }),
    token: z.string().meta({ description: "What the link holds; programs may send it as X-Forkd-Token to the link's host" }),
    expires_at_unix: unixSeconds,
  })
  .meta({ id: "Preview" });

export const portRoutes = {
  listPorts: {
    method: "GET",
    path: "/v1/sandboxes/:id/ports",
    scope: "exec",
    summary: "Listening TCP ports of a sandbox",
    params: bySandbox,
    responses: { 200: z.array(portInfo) },
  },
  createPreview: {
    method: "POST",
    path: "/v1/sandboxes/:id/ports/:port/preview",
    scope: "exec",
    summary: "A link that opens a server in a browser until it expires",
    params: byPort,
    body: createPreview,
    responses: { 201: preview },
  },
  connectPort: {
    method: "GET",
    path: "/v1/sandboxes/:id/ports/:port/connect",
    scope: "exec",
    summary: "A TCP connection to a server, with Upgrade: tcp",
    params: byPort,
    responses: { 101: "upgrade" },
  },
  proxyRequest: {
    method: "ALL",
    path: "/v1/sandboxes/:id/proxy/:port/*",
    scope: "exec",
    summary: "Forwards any HTTP request to a server, streamed both ways, including upgrades such as WebSocket",
    params: byPort,
    body: "bytes",
    responses: { 101: "upgrade", 200: "any" },
  },
} as const satisfies Record<string, Route>;

export type PortInfo = z.infer<typeof portInfo>;

// Routes of hubs: snapshots to and from other machines.

import * as z from "zod";
import { name } from "../common.ts";
import * as hub from "../hub.ts";
import { unpacked } from "../pack.ts";
import type { Route } from "../route.ts";

export const hubRoutes = {
  pushSnapshot: {
    method: "POST",
    path: "/v1/snapshots/:tag/push",
    scope: "admin",
    summary: "Sends a snapshot with all it builds on to an OCI registry or a web server; what is there is not sent again",
    params: z.strictObject({ tag: name }),
    body: hub.pushSnapshot,
    responses: { 201: hub.pushedSnapshot },
    progress: true,
  },
  pullSnapshot: {
    method: "POST",
    path: "/v1/snapshots/pull",
    scope: "admin",
    summary: "Gets a snapshot from an OCI registry, a web server or a hub; what is here is not fetched again",
    body: hub.pullSnapshot,
    responses: { 201: unpacked },
    progress: true,
  },
  listHub: {
    method: "GET",
    path: "/v1/hub",
    scope: "admin",
    summary: "What the index of a hub has",
    query: hub.hubQuery,
    responses: { 200: hub.hubListing },
  },
} as const satisfies Record<string, Route>;

// The dashboard: links that log a browser in.

import * as z from "zod";
import { scope, unixSeconds } from "./common.ts";
import type { Route } from "./route.ts";

/** A timer ends the streams of a session; Node's timers are limited to 24 days */
const MAX_SESSION_SECS = 14 * 24 * 3600;
const USUAL_SESSION_SECS = 12 * 3600;

const createUiLink = z
  .strictObject({
    scope: scope.optional().meta({ description: "What the dashboard may do; at most the scope of the caller, which is also the default" }),
    session_secs: z
      .int()
      .min(60)
      .max(MAX_SESSION_SECS)
      .default(USUAL_SESSION_SECS)
      .meta({ description: "How long the browser stays logged in; at most 14 days" }),
  })
  .meta({ id: "CreateUiLink" });

const uiLink = z
  .strictObject({
    url: z.string().meta({ description: "Opens the dashboard once, and logs that browser in" }),
    project: z.string(),
    scope,
    expires_at_unix: unixSeconds.meta({ description: "The link must be opened before" }),
    session_secs: z.int().meta({ description: "How long the browser then stays logged in" }),
  })
  .meta({ id: "UiLink" });

/** Body of POST /ui/session, which the dashboard sends */
export const openUiSession = z.strictObject({ code: z.string().max(200) });

/**
 * Answer of /ui/session. `key`: value of the header X-Forkd-Ui; only after a login. `is_cluster`: a gateway answers, which
 * has pages for its nodes
 */
export type UiSessionInfo = {
  principal: string;
  project: string;
  scope: z.infer<typeof scope>;
  expires_at_unix: number;
  version: string;
  is_cluster: boolean;
  key?: string;
};

export const uiRoutes = {
  createUiLink: {
    method: "POST",
    path: "/v1/ui/links",
    scope: "read",
    summary: "A link that opens the dashboard once and logs that browser in",
    body: createUiLink,
    responses: { 201: uiLink },
  },
  deleteUiSessions: {
    method: "DELETE",
    path: "/v1/ui/sessions",
    scope: "admin",
    summary: "Logs all browsers of the project out of the dashboard; links that were not opened become invalid",
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

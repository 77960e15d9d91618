// Every route of the API, as data: the server validates by it, spec/openapi.json and the SDK's types are generated from it.

import type * as z from "zod";
import { contextRoutes } from "./routes/contexts.ts";
import { daemonRoutes } from "./routes/daemon.ts";
import { fileRoutes } from "./routes/files.ts";
import { packRoutes } from "./routes/packs.ts";
import { hubRoutes } from "./routes/hub.ts";
import { portRoutes } from "./routes/ports.ts";
import { processRoutes } from "./routes/processes.ts";
import { sandboxRoutes } from "./routes/sandboxes.ts";
import { snapshotRoutes } from "./routes/snapshots.ts";
import { workspaceRoutes } from "./routes/workspaces.ts";

export const routes = {
  ...daemonRoutes,
  ...snapshotRoutes,
  ...packRoutes,
  ...hubRoutes,
  ...sandboxRoutes,
  ...contextRoutes,
  ...fileRoutes,
  ...processRoutes,
  ...portRoutes,
  ...workspaceRoutes,
} as const;

export type RouteName = keyof typeof routes;

type Parsed<T> = T extends z.ZodType ? z.output<T> : T extends "bytes" ? NodeJS.ReadableStream : undefined;
type Part<R, K extends string> = R extends Record<K, infer T> ? Parsed<T> : undefined;

/** What a handler gets of a request that has been validated */
export type Input<N extends RouteName> = {
  params: Part<(typeof routes)[N], "params">;
  query: Part<(typeof routes)[N], "query">;
  body: Part<(typeof routes)[N], "body">;
};

// Every route of the API. The server validates requests by this table; spec/openapi.json and the SDKs' types are generated from it.

import type * as z from "zod";
import { branchRoutes } from "./branch.ts";
import { clusterRoutes } from "./cluster.ts";
import { contextRoutes } from "./contexts.ts";
import { daemonRoutes } from "./daemon.ts";
import { execRoutes } from "./exec.ts";
import { fileRoutes } from "./files.ts";
import { hubRoutes } from "./hub.ts";
import { imageRoutes } from "./image.ts";
import { networkRoutes } from "./network.ts";
import { packRoutes } from "./pack.ts";
import { portRoutes } from "./ports.ts";
import { processRoutes } from "./process.ts";
import { recipeRoutes } from "./recipes.ts";
import { sandboxRoutes } from "./sandbox.ts";
import { snapshotRoutes } from "./snapshot.ts";
import { uiRoutes } from "./ui.ts";
import { workspaceRoutes } from "./workspace.ts";

export const routes = {
  ...daemonRoutes,
  ...clusterRoutes,
  ...uiRoutes,
  ...imageRoutes,
  ...snapshotRoutes,
  ...packRoutes,
  ...hubRoutes,
  ...recipeRoutes,
  ...sandboxRoutes,
  ...execRoutes,
  ...branchRoutes,
  ...networkRoutes,
  ...contextRoutes,
  ...fileRoutes,
  ...processRoutes,
  ...portRoutes,
  ...workspaceRoutes,
} as const;

export type RouteName = keyof typeof routes;

type Parsed<T> = T extends z.ZodType ? z.output<T> : T extends "bytes" ? NodeJS.ReadableStream : undefined;
type Part<R, K extends string> = R extends Record<K, infer T> ? Parsed<T> : undefined;

/** The validated parts of a request, as a handler gets them */
export type Input<N extends RouteName> = {
  params: Part<(typeof routes)[N], "params">;
  query: Part<(typeof routes)[N], "query">;
  body: Part<(typeof routes)[N], "body">;
};

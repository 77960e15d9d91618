// Routes of live processes.

import * as z from "zod";
import { name } from "../common.ts";
import * as process from "../process.ts";
import type { Route } from "../route.ts";

const id = name.meta({ description: "Id or name of a sandbox" });
const inSandbox = z.strictObject({ id });
const one = z.strictObject({ id, process: name.meta({ description: "Id or tag of a process" }) });

export const processRoutes = {
  startProcess: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes",
    scope: "exec",
    summary: "Starts a process, which goes on whoever goes away; with Accept: text/event-stream its output follows at once",
    params: inSandbox,
    query: process.startQuery,
    body: process.startProcess,
    responses: { 200: "events", 201: process.processInfo },
    events: process.processEvent,
  },
  listProcesses: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes",
    scope: "exec",
    summary: "Processes that were started and run, and the newest 64 that have ended",
    params: inSandbox,
    responses: { 200: z.array(process.processInfo) },
  },
  streamProcess: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes/stream",
    scope: "exec",
    summary: "Starts or attaches to a process over a WebSocket",
    params: inSandbox,
    responses: { 101: "upgrade" },
  },
  getProcess: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes/:process",
    scope: "exec",
    summary: "One process",
    params: one,
    responses: { 200: process.processInfo },
  },
  killProcess: {
    method: "DELETE",
    path: "/v1/sandboxes/:id/processes/:process",
    scope: "exec",
    summary: "Kills a process and its group; answers when it has ended",
    params: one,
    responses: { 204: "empty" },
  },
  watchProcess: {
    method: "GET",
    path: "/v1/sandboxes/:id/processes/:process/output",
    scope: "exec",
    summary: "Its output from any place that is kept, as server-sent events",
    params: one,
    query: process.outputQuery,
    responses: { 200: "events" },
    events: process.processEvent,
  },
  writeStdin: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes/:process/stdin",
    scope: "exec",
    summary: "Writes the body to its stdin, as fast as it takes it",
    params: one,
    query: process.stdinQuery,
    body: "bytes",
    responses: { 204: "empty" },
  },
  signalProcess: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes/:process/signal",
    scope: "exec",
    summary: "Sends it a signal",
    params: one,
    body: process.signalProcess,
    responses: { 204: "empty" },
  },
  resizeProcess: {
    method: "POST",
    path: "/v1/sandboxes/:id/processes/:process/resize",
    scope: "exec",
    summary: "Tells it the size of its terminal",
    params: one,
    body: process.terminalSize,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

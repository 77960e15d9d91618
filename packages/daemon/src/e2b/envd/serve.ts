// envd server: REST paths, and two Connect services.

import { ForkdError } from "@forkd/runtime/errors";
import { getEnvironment, getMetrics } from "./environment.ts";
import { download, upload } from "./files.ts";
import * as filesystem from "./filesystem.ts";
import * as process from "./process.ts";
import * as watch from "./watch.ts";
import type { SandboxServer, SandboxWork } from "../work.ts";
import type { Answer } from "../../dispatch/answer.ts";

export const envdRoutes: Readonly<Record<string, SandboxServer>> = {
  "GET /health": () => ({ status: 204 }),
  "GET /envs": getEnvironment,
  "GET /metrics": getMetrics,
  "GET /files": download,
  "POST /files": upload,
  ...service("filesystem.Filesystem", {
    Stat: filesystem.stat,
    MakeDir: filesystem.makeDir,
    Move: filesystem.move,
    ListDir: filesystem.listDir,
    Remove: filesystem.remove,
    WatchDir: watch.watchDir,
    CreateWatcher: watch.createWatcher,
    GetWatcherEvents: watch.getWatcherEvents,
    RemoveWatcher: watch.removeWatcher,
  }),
  ...service("process.Process", {
    Start: process.startProcess,
    Connect: process.connectProcess,
    List: process.listProcesses,
    SendInput: process.sendInput,
    CloseStdin: process.closeStdin,
    SendSignal: process.sendSignal,
    Update: process.updateProcess,
  }),
};

export function serveEnvd(work: SandboxWork): Answer | Promise<Answer> {
  const { call, request } = work;
  const handler = envdRoutes[`${request.method === "HEAD" ? "GET" : request.method} ${call.path}`];
  if (!handler) throw new ForkdError("METHOD_NOT_ALLOWED", `Cannot ${request.method} ${call.path}: a sandbox does not have this path.`);
  return handler(work);
}

function service(name: string, methods: Record<string, SandboxServer>): Record<string, SandboxServer> {
  return Object.fromEntries(Object.entries(methods).map(([method, handler]) => [`POST /${name}/${method}`, handler]));
}

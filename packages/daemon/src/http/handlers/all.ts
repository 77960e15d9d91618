// Every handler.

import { contextHandlers } from "./contexts.ts";
import { daemonHandlers } from "./daemon.ts";
import { fileHandlers } from "./files.ts";
import { packHandlers } from "./packs.ts";
import { hubHandlers } from "./hub.ts";
import { portHandlers } from "./ports.ts";
import { processHandlers } from "./processes.ts";
import { sandboxHandlers } from "./sandboxes.ts";
import { snapshotHandlers } from "./snapshots.ts";
import { workspaceHandlers } from "./workspaces.ts";
import type { Handlers } from "../handler.ts";

export const handlers: Handlers = {
  ...daemonHandlers,
  ...snapshotHandlers,
  ...packHandlers,
  ...hubHandlers,
  ...sandboxHandlers,
  ...contextHandlers,
  ...fileHandlers,
  ...processHandlers,
  ...portHandlers,
  ...workspaceHandlers,
};

// Table of all REST handlers.

import { branchHandlers } from "./branches.ts";
import { clusterHandlers } from "./cluster.ts";
import { contextHandlers } from "./contexts.ts";
import { daemonHandlers } from "./daemon.ts";
import { execHandlers } from "./exec.ts";
import { fileHandlers } from "./files.ts";
import { hubHandlers } from "./hub.ts";
import { imageHandlers } from "./images.ts";
import { networkHandlers } from "./networks.ts";
import { packHandlers } from "./packs.ts";
import { portHandlers } from "./ports.ts";
import { processHandlers } from "./processes.ts";
import { recipeHandlers } from "./recipes.ts";
import { sandboxHandlers } from "./sandboxes.ts";
import { snapshotHandlers } from "./snapshots.ts";
import { uiHandlers } from "./ui.ts";
import { workspaceHandlers } from "./workspaces.ts";
import type { Handlers } from "../handler.ts";

export const handlers: Handlers = {
  ...daemonHandlers,
  ...clusterHandlers,
  ...uiHandlers,
  ...imageHandlers,
  ...snapshotHandlers,
  ...packHandlers,
  ...hubHandlers,
  ...recipeHandlers,
  ...sandboxHandlers,
  ...execHandlers,
  ...branchHandlers,
  ...networkHandlers,
  ...contextHandlers,
  ...fileHandlers,
  ...processHandlers,
  ...portHandlers,
  ...workspaceHandlers,
};

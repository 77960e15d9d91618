// All contract cases, in order of their dependencies.

import { branchCases } from "./branch-cases.ts";
import { daemonCases, tokenCases } from "./daemon-cases.ts";
import { fileCases } from "./file-cases.ts";
import { hubCases } from "./hub-cases.ts";
import { insideCases } from "./inside-cases.ts";
import { lineageCases, removalCases } from "./lineage-cases.ts";
import { packCases } from "./pack-cases.ts";
import { packNetworkCases } from "./pack-network-cases.ts";
import { portCases } from "./port-cases.ts";
import { projectCases } from "./project-cases.ts";
import { processCases } from "./process-cases.ts";
import { networkCases } from "./network-cases.ts";
import { recipeCases } from "./recipe-cases.ts";
import { endCases, sandboxCases } from "./sandbox-cases.ts";
import { shareCases } from "./share-cases.ts";
import { snapshotCases } from "./snapshot-cases.ts";
import { workspaceCases } from "./workspace-cases.ts";
import type { Case } from "./case.ts";

export const GROUPS: { title: string; cases: Case[] }[] = [
  { title: "the daemon", cases: daemonCases },
  { title: "tokens", cases: tokenCases },
  { title: "projects", cases: projectCases },
  { title: "snapshots", cases: snapshotCases },
  { title: "recipes", cases: recipeCases },
  { title: "packs", cases: packCases },
  { title: "networks of packs", cases: packNetworkCases },
  { title: "hubs", cases: hubCases },
  { title: "lineage", cases: [...lineageCases, ...removalCases] },
  { title: "sandboxes", cases: sandboxCases },
  { title: "inside a sandbox", cases: insideCases },
  { title: "ports", cases: portCases },
  { title: "live processes", cases: processCases },
  { title: "the network of a sandbox", cases: networkCases },
  { title: "files", cases: fileCases },
  { title: "branches", cases: branchCases },
  { title: "shares", cases: shareCases },
  { title: "the end of sandboxes", cases: endCases },
  { title: "workspaces", cases: workspaceCases },
];

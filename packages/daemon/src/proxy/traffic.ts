// E2B access rules for a sandbox's ports: traffic token, or none if the sandbox is public.

import { ForkdError } from "@forkd/runtime/errors";
import { PUBLIC_KEY } from "../dispatch/port-metadata.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { Identity } from "../store/tokens.ts";
import type { Services } from "../dispatch/services.ts";

export const TRAFFIC_HEADER = "e2b-traffic-access-token";

type Needs = Pick<Services, "accessTokens"> & {
  manager: { ports: Pick<Services["manager"]["ports"], "find"> };
};

/** Identity granted by the traffic token, or by a public sandbox; null: none */
export function openedByTraffic(
  id: string,
  headers: IncomingHttpHeaders,
  { accessTokens, manager }: Needs,
): Pick<Required<Identity>, "name" | "project" | "via" | "opens"> | null {
  const sandbox = manager.ports.find(id);
  if (!sandbox) return null;
  const token = headers[TRAFFIC_HEADER];
  const opened = { name: sandbox.created_by, project: sandbox.project, opens: sandbox.id };
  if (typeof token === "string" && accessTokens.opens(token, sandbox, "traffic")) return { ...opened, via: "traffic" };
  return sandbox.metadata[PUBLIC_KEY] === "true" ? { ...opened, via: "public" } : null;
}

/** Throws VMM_EXITED. E2B reports a killed sandbox as not found, whatever the token */
export function checkThere(id: string, { manager }: Pick<Needs, "manager">): void {
  const state = manager.ports.find(id)?.state ?? "ended";
  if (state === "ended" || state === "lost") throw new ForkdError("VMM_EXITED", `There is no sandbox ${id}.`);
}

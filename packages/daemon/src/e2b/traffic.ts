// Who may use a sandbox's own servers by what E2B's API gave them: its traffic token, or nothing where all the world may.

import { PUBLIC_KEY } from "./lifecycle.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { Services } from "../http/services.ts";

type Needs = Pick<Services, "accessTokens"> & {
  manager: { sandboxes: Pick<Services["manager"]["sandboxes"], "get">; ports: Pick<Services["manager"]["ports"], "idOf"> };
};

/** Whose sandbox it is that is opened by it; null: it is not */
export function openedByTraffic(id: string, headers: IncomingHttpHeaders, { accessTokens, manager }: Needs): string | null {
  const known = manager.ports.idOf(id);
  if (known === undefined) return null;
  const sandbox = manager.sandboxes.get(known);
  const token = headers["e2b-traffic-access-token"];
  const isOpen = sandbox.metadata[PUBLIC_KEY] === "true" || (typeof token === "string" && accessTokens.opens(token, sandbox, "traffic"));
  return isOpen ? sandbox.created_by : null;
}

// Proxy errors in the form of E2B's proxy, for clients that use E2B's names or headers.

import { PAGE_HEADERS, pageOf } from "./page.ts";
import { isGone } from "../dispatch/problem.ts";
import { e2bId } from "../dispatch/e2b-id.ts";
import { TRAFFIC_HEADER } from "./traffic.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { Problem } from "../api/common.ts";
import type { Answer } from "../dispatch/answer.ts";
import type { ErrorAnswer } from "../dispatch/problem.ts";
import type { Address } from "../dispatch/target.ts";

/** E2B's proxy sends an HTML page to these user agents, whatever they accept */
const BROWSER = /mozilla|chrome|safari|firefox|edge|opera|msie/i;

type Refused = { status: number; title: string; message: string; port?: number };

/** null: E2B defines no form for this error */
export function serverRefusal({ id, port }: Address, { headers, problem }: ErrorAnswer, client: IncomingHttpHeaders): Answer | null {
  const refused = refusedOf(problem, Number(port), client);
  if (!refused) return null;
  const { status, title, ...body } = refused;
  if (BROWSER.test(client["user-agent"] ?? ""))
    return { status, headers: { ...headers, ...PAGE_HEADERS }, body: pageOf({ ...problem, error: `${body.message}.` }, title) };
  return {
    status,
    headers: { ...headers, "content-type": "application/json; charset=utf-8" },
    body: JSON.stringify({ sandboxId: e2bId(id), ...body, code: status }),
  };
}

function refusedOf(problem: Problem, port: number, client: IncomingHttpHeaders): Refused | null {
  if (problem.code === "NOT_FOUND" || isGone(problem))
    return { status: 502, title: "Sandbox Not Found", message: "The sandbox was not found" };
  if (problem.code === "PORT_CLOSED")
    return { status: 502, title: "Closed Port Error", message: "The sandbox is running but port is not open", port };
  if (problem.code !== "UNAUTHORIZED") return null;
  const [title, why] =
    client[TRAFFIC_HEADER] === undefined
      ? ["Missing Traffic Access Token", `Token header '${TRAFFIC_HEADER}' is missing`]
      : ["Invalid Traffic Access Token", `Provided token in header '${TRAFFIC_HEADER}' is invalid`];
  return { status: 403, title, message: `Sandbox is secured with traffic access token. ${why}` };
}

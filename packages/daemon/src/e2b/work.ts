// What the handlers of E2B's protocol get, and how they are found.

import type { IncomingMessage } from "node:http";
import type * as z from "zod";
import type { Scope } from "../api/daemon.ts";
import type { SandboxInfo } from "../api/sandbox.ts";
import type { AnyAnswer } from "../http/handler.ts";
import type { Services } from "../http/services.ts";
import type { Caller } from "../manager/caller.ts";
import { readJson } from "../http/body.ts";
import { parse } from "../http/validate.ts";
import type { ControlCall, SandboxCall } from "./call.ts";
import type { Accounts } from "./envd/accounts.ts";
import type { Watchers } from "./envd/watchers.ts";
import type { Builds } from "./templates/builds.ts";
import type { Templates } from "./templates/templates.ts";

/** What the daemon has, and what only this protocol needs */
export type E2bServices = Omit<Services, "e2b"> & { templates: Templates; accounts: Accounts; watchers: Watchers; builds: Builds };

type Common = { request: IncomingMessage; services: E2bServices; caller: Caller };

/** A request to E2B's API; `params`: the parts of its path that its route leaves open */
export type ControlWork = Common & { call: ControlCall; params: Record<string, string> };

/** A request to a server inside a sandbox, which runs */
export type SandboxWork = Common & { call: SandboxCall; sandbox: SandboxInfo };

export type ControlRoute = {
  method: string;
  /** as in `/sandboxes/:id` */
  path: string;
  scope: Scope;
  /** whoever has its address may use it */
  byAddress?: true;
  handler: (work: ControlWork) => AnyAnswer | Promise<AnyAnswer>;
};

/** What E2B has listening on one port of a sandbox */
export type SandboxServer = (work: SandboxWork) => AnyAnswer | Promise<AnyAnswer>;

/** The body, with what the schema does not know left out: newer SDKs say more */
export async function bodyOf<T extends z.ZodType>({ request, services }: Common, schema: T): Promise<z.output<T>> {
  return parse(schema, (await readJson(request, services.limits)) ?? {}, "body");
}

// Handler input and route types of the E2B front end.

import type { IncomingMessage } from "node:http";
import type * as z from "zod";
import type { Scope } from "../api/common.ts";
import type { SandboxInfo } from "../api/sandbox.ts";
import type { AuthFailures } from "../dispatch/auth-failures.ts";
import type { Answer } from "../dispatch/answer.ts";
import type { Services } from "../dispatch/services.ts";
import type { Caller } from "../service/caller.ts";
import { readJson } from "../streams/body.ts";
import { parse } from "../dispatch/parse.ts";
import type { ControlCall, SandboxCall } from "../dispatch/target.ts";
import type { Accounts } from "./envd/accounts.ts";
import type { Watchers } from "./envd/watchers.ts";
import type { Builds } from "./templates/builds.ts";
import type { Templates } from "./templates/templates.ts";

/** Shared services plus those of the E2B front end */
export type E2bServices = Omit<Services, "e2b"> & {
  templates: Templates;
  accounts: Accounts;
  watchers: Watchers;
  builds: Builds;
  /** failed sandbox searches by token or signature, per address */
  searches: AuthFailures;
};

type Common = { request: IncomingMessage; services: E2bServices; caller: Caller };

/** Request to the control API; `params`: path parameters */
export type ControlWork = Common & { call: ControlCall; params: Record<string, string> };

/** Request to an in-sandbox server; the sandbox is running */
export type SandboxWork = Common & { call: SandboxCall; sandbox: SandboxInfo };

export type ControlRoute = {
  method: string;
  /** path pattern such as `/sandboxes/:id` */
  path: string;
  scope: Scope;
  /** authenticated by the token in the URL */
  byAddress?: true;
  handler: (work: ControlWork) => Answer | Promise<Answer>;
};

/** In-sandbox server on one port */
export type SandboxServer = (work: SandboxWork) => Answer | Promise<Answer>;

/** Validated body; drops unknown fields, which newer SDKs may send */
export async function bodyOf<T extends z.ZodType>({ request, services }: Common, schema: T): Promise<z.output<T>> {
  return parse(schema, (await readJson(request, services.limits)) ?? {}, "body");
}

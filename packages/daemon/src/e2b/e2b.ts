// E2B's protocol on the wire: its API, and what its SDKs expect inside a sandbox. It calls what our own handlers call.

import { ForkdError } from "../errors.ts";
import { admitByAddress, admitToControl, admitToSandbox, gone } from "./access.ts";
import { ENVD_PORT, INTERPRETER_PORT } from "./call.ts";
import { controlRoutes } from "./control/routes.ts";
import { Accounts } from "./envd/accounts.ts";
import { serveEnvd } from "./envd/serve.ts";
import { Watchers } from "./envd/watchers.ts";
import { serveInterpreter } from "./interpreter/serve.ts";
import { Builds } from "./templates/builds.ts";
import { Templates } from "./templates/templates.ts";
import { Uploads } from "./templates/uploads.ts";
import type { IncomingMessage } from "node:http";
import type { SandboxInfo } from "../api/sandbox.ts";
import type { AnyAnswer } from "../http/handler.ts";
import type { Services } from "../http/services.ts";
import type { Caller } from "../manager/caller.ts";
import type { Identity } from "../store/tokens.ts";
import type { Asked } from "./access.ts";
import type { Call, ControlCall, SandboxCall } from "./call.ts";
import type { ControlRoute, E2bServices, SandboxServer } from "./work.ts";

const SERVERS: Record<SandboxCall["port"], SandboxServer> = {
  [ENVD_PORT]: serveEnvd,
  [INTERPRETER_PORT]: serveInterpreter,
};

const ROUTES = controlRoutes.map((route) => ({
  route,
  pattern: new RegExp(`^${route.path.replaceAll(/:(\w+)/g, "(?<$1>[^/]+)")}/?$`),
}));

export class E2b {
  readonly #services: E2bServices;
  /** whose sandbox a request is for, once that is clear */
  readonly #sandboxes = new WeakMap<SandboxCall, SandboxInfo>();

  /** `folder`: for files that are sent before they are needed */
  constructor(services: Omit<Services, "e2b">, folder: string) {
    const templates = new Templates(services);
    this.#services = {
      ...services,
      templates,
      builds: new Builds(services, templates, new Uploads(folder)),
      accounts: new Accounts(services),
      watchers: new Watchers(services),
    };
  }

  /** Before any byte of the body is read. null: nobody has to be known for it */
  admit(call: Call, asked: Asked): Identity | null {
    if (call.plane === "control") {
      const found = routeOf(call, asked.request.method);
      if (found?.route.byAddress) return admitByAddress(call, asked, found.params, this.#services);
      return admitToControl(asked, found?.route.scope ?? "read", this.#services);
    }
    const { identity, sandbox } = admitToSandbox(call, asked, this.#services);
    this.#sandboxes.set(call, sandbox);
    call.id = sandbox.id;
    return identity;
  }

  async serve(call: Call, request: IncomingMessage, caller: Caller): Promise<AnyAnswer> {
    const common = { request, services: this.#services, caller };
    if (call.plane === "control") {
      const found = routeOf(call, request.method);
      if (!found) throw new ForkdError("NOT_FOUND", `Cannot ${request.method} ${call.path}: forkd has nothing of E2B's API there.`);
      return found.route.handler({ ...common, call, params: found.params });
    }
    const sandbox = this.#sandboxes.get(call);
    if (!sandbox) throw new ForkdError("UNAUTHORIZED", "Cannot open the sandbox.");
    const use = await this.#use(sandbox.id);
    try {
      return await SERVERS[call.port]({ ...common, call, sandbox });
    } finally {
      use.close();
    }
  }

  /** It must run, and is used for as long as the answer takes to begin; what streams uses it by itself */
  async #use(id: string): Promise<{ close(): void }> {
    try {
      return await this.#services.manager.ports.open(id);
    } catch (error) {
      throw gone(error);
    }
  }
}

function routeOf({ path }: ControlCall, method: string | undefined): { route: ControlRoute; params: Record<string, string> } | null {
  for (const { route, pattern } of ROUTES) {
    const match = route.method === method ? pattern.exec(path) : null;
    if (match) return { route, params: decoded(match.groups ?? {}) };
  }
  return null;
}

function decoded(groups: Record<string, string>): Record<string, string> {
  try {
    return Object.fromEntries(Object.entries(groups).map(([name, text]) => [name, decodeURIComponent(text)]));
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    throw new ForkdError("BAD_REQUEST", "Cannot read the URL: its escapes are malformed.");
  }
}

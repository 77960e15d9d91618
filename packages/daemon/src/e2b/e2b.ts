// E2B front end: the control API, and the two servers (envd, code interpreter) that E2B's SDKs expect in each sandbox.

import { Readable } from "node:stream";
import { ForkdError } from "@forkd/runtime/errors";
import { AuthFailures } from "../dispatch/auth-failures.ts";
import { forkdId } from "../dispatch/e2b-id.ts";
import { respond } from "../dispatch/respond.ts";
import { Router, type Found } from "../dispatch/router.ts";
import { ENVD_PORT, INTERPRETER_PORT } from "../dispatch/target.ts";
import { admitByAddress, admitToControl, admitToSandbox, gone } from "./access.ts";
import { controlRoutes } from "./control/routes.ts";
import { Accounts } from "./envd/accounts.ts";
import { serveEnvd } from "./envd/serve.ts";
import { Watchers } from "./envd/watchers.ts";
import { expectsReset, refusal } from "./errors.ts";
import { serveInterpreter } from "./interpreter/serve.ts";
import { Builds } from "./templates/builds.ts";
import { Templates } from "./templates/templates.ts";
import { Uploads } from "./templates/uploads.ts";
import type { SandboxInfo } from "../api/sandbox.ts";
import type { Answer } from "../dispatch/answer.ts";
import type { Exchange } from "../dispatch/exchange.ts";
import type { FrontEnd, Work } from "../dispatch/front-end.ts";
import type { Services } from "../dispatch/services.ts";
import type { ControlCall, SandboxCall, Target } from "../dispatch/target.ts";
import type { Caller } from "../service/caller.ts";
import type { ControlRoute, E2bServices, SandboxServer } from "./work.ts";

const LABEL = "/e2b";

/** Failed token searches per address and minute. Limited because each compares the token with those of all sandboxes */
const MAX_SEARCHES = 100;

const SERVERS: Record<SandboxCall["port"], SandboxServer> = {
  [ENVD_PORT]: serveEnvd,
  [INTERPRETER_PORT]: serveInterpreter,
};

const ROUTER = new Router<ControlRoute>();
for (const route of controlRoutes) ROUTER.add(route.method, route.path, route);

export class E2b implements FrontEnd<"e2b"> {
  readonly #services: E2bServices;

  /** @param folder for template files, which are uploaded before the build */
  constructor(services: Services, folder: string) {
    const templates = new Templates(services);
    const accounts = new Accounts(services);
    this.#services = {
      ...services,
      templates,
      builds: new Builds(services, { templates, accounts, uploads: new Uploads(folder) }),
      accounts,
      watchers: new Watchers(services),
      searches: new AuthFailures({ max: MAX_SEARCHES }),
    };
  }

  /** True for a named sandbox: its servers have no upgrades and respond as to an ordinary request */
  mayUpgrade({ call }: Extract<Target, { to: "e2b" }>): boolean {
    return call.plane === "sandbox" && call.id !== null;
  }

  open(exchange: Exchange, { call }: Extract<Target, { to: "e2b" }>): Work {
    return call.plane === "control" ? this.#openControl(exchange, call) : this.#openSandbox(exchange, call);
  }

  #openControl(exchange: Exchange, call: ControlCall): Work {
    const { request, method } = exchange;
    const services = this.#services;
    let found: Found<ControlRoute> | null = null;
    let malformed: ForkdError | undefined;
    try {
      found = ROUTER.find(method, call.path);
    } catch (error) {
      // handled below, so that the response has the form of E2B's errors
      if (!(error instanceof ForkdError)) throw error;
      malformed = error;
    }
    const { remote, stated, transport } = exchange;
    const asked = { request, kind: transport.kind, remote, stated };
    return {
      label: LABEL,
      path: call.path,
      snapshot: null,
      isProbe: false,
      sandbox: () => sandboxIn(found),
      admit: () => {
        if (malformed) throw malformed;
        if (found?.route.byAddress) return { identity: admitByAddress(call, asked, found.params, services), scope: null };
        return { identity: admitToControl(asked, services), scope: found?.route.scope ?? "read" };
      },
      serve: async () => {
        if (!found) throw new ForkdError("NOT_FOUND", `Cannot ${method} ${call.path}: forkd does not implement this path of E2B's API.`);
        const { caller } = exchange;
        await send(exchange, await found.route.handler({ request, services, caller, call, params: found.params }));
      },
      refuse: (error) => refusal(call, null, error),
    };
  }

  #openSandbox(exchange: Exchange, call: SandboxCall): Work {
    const { request } = exchange;
    const services = this.#services;
    let sandbox: SandboxInfo | undefined;
    const idOf = (): string | null => sandbox?.id ?? call.id;
    return {
      label: LABEL,
      path: call.path,
      snapshot: null,
      isProbe: false,
      sandbox: idOf,
      admit: () => {
        const { remote, stated, transport } = exchange;
        const admitted = admitToSandbox(call, { request, kind: transport.kind, remote, stated }, services);
        ({ sandbox } = admitted);
        return { identity: admitted.identity, scope: null };
      },
      serve: async () => {
        if (!sandbox) throw new ForkdError("UNAUTHORIZED", "Cannot open the sandbox.");
        await send(exchange, await this.#inSandbox(sandbox, exchange, call));
      },
      refuse: (error) => refusal(call, idOf(), error),
    };
  }

  /** Resumes the sandbox and holds it in use until the response starts; a stream takes its own lease */
  async #inSandbox(sandbox: SandboxInfo, { request, caller }: Exchange, call: SandboxCall): Promise<Answer> {
    const services = this.#services;
    const lease = await this.#lease(sandbox.id, caller);
    try {
      return await SERVERS[call.port]({ request, services, caller, call, sandbox });
    } finally {
      lease.release();
    }
  }

  async #lease(id: string, caller: Caller): Promise<{ release(): void }> {
    try {
      return await this.#services.manager.sandboxes.lease(id, caller);
    } catch (error) {
      throw gone(error);
    }
  }
}

async function send(exchange: Exchange, answer: Answer): Promise<void> {
  const { request, transport } = exchange;
  // must be registered before respond()'s error listener, which closes the connection cleanly
  if (answer.body instanceof Readable && transport.kind === "tcp" && !transport.tls && expectsReset(request.headers))
    answer.body.once("error", () => request.socket.resetAndDestroy());
  await respond(exchange, answer);
}

function sandboxIn(found: Found<ControlRoute> | null): string | null {
  return found?.route.path.includes("/sandboxes/:id") ? forkdId(found.params["id"] ?? "") : null;
}

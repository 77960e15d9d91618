// Interpreter contexts of sandboxes.

import type { ContextInfo, CreateContext } from "../api/contexts.ts";
import type { ContextInfo as GuestContext } from "@forkd/runtime/agent/kernel/contexts";
import type { Caller, Viewer } from "./caller.ts";
import type { Sandboxes } from "./sandboxes.ts";

type Asked = Viewer & Pick<Caller, "signal">;

export class Contexts {
  readonly #sandboxes: Sandboxes;

  constructor(sandboxes: Sandboxes) {
    this.#sandboxes = sandboxes;
  }

  async list(id: string, caller: Viewer): Promise<ContextInfo[]> {
    return this.#sandboxes.use(id, caller, async ({ contexts }) => (await contexts.list()).map(infoOf));
  }

  async create(id: string, request: CreateContext, caller: Asked): Promise<ContextInfo> {
    const { language, cwd, env } = request;
    return this.#sandboxes.use(id, caller, async ({ contexts }) =>
      infoOf(await contexts.create(language, { cwd, env, signal: caller.signal })),
    );
  }

  /** The first running context of a language; starts one if there is none */
  async ensure(id: string, request: CreateContext, caller: Asked): Promise<ContextInfo> {
    const { language, cwd, env } = request;
    return this.#sandboxes.use(id, caller, async ({ contexts }) =>
      infoOf(await contexts.ensure(language, { cwd, env, signal: caller.signal })),
    );
  }

  async remove(id: string, context: string, caller: Viewer): Promise<void> {
    return this.#sandboxes.use(id, caller, async ({ contexts }) => contexts.remove(context));
  }

  async restart(id: string, context: string, caller: Asked): Promise<ContextInfo> {
    return this.#sandboxes.use(id, caller, async ({ contexts }) => infoOf(await contexts.restart(context, caller.signal)));
  }

  async interrupt(id: string, context: string, caller: Viewer): Promise<void> {
    return this.#sandboxes.use(id, caller, async ({ contexts }) => contexts.interrupt(context));
  }
}

function infoOf({ id, language, cwd, alive }: GuestContext): ContextInfo {
  return { id, language, cwd, state: alive ? "running" : "ended" };
}

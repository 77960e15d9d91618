// Interpreter contexts of sandboxes.

import type { ContextInfo, CreateContext } from "../api/contexts.ts";
import type { ContextInfo as GuestContext } from "@forkd/runtime/agent/kernel/contexts";
import type { Caller } from "./caller.ts";
import type { Sandboxes } from "./sandboxes.ts";

type Signal = Pick<Caller, "signal">;

export class Contexts {
  readonly #sandboxes: Sandboxes;

  constructor(sandboxes: Sandboxes) {
    this.#sandboxes = sandboxes;
  }

  async list(id: string): Promise<ContextInfo[]> {
    return this.#sandboxes.use(id, async ({ contexts }) => (await contexts.list()).map(infoOf));
  }

  async create(id: string, request: CreateContext, { signal }: Signal): Promise<ContextInfo> {
    const { language, cwd, env } = request;
    return this.#sandboxes.use(id, async ({ contexts }) => infoOf(await contexts.create(language, { cwd, env, signal })));
  }

  /** The first running context of a language; starts one if there is none */
  async ensure(id: string, request: CreateContext, { signal }: Signal): Promise<ContextInfo> {
    const { language, cwd, env } = request;
    return this.#sandboxes.use(id, async ({ contexts }) => infoOf(await contexts.ensure(language, { cwd, env, signal })));
  }

  async remove(id: string, context: string): Promise<void> {
    return this.#sandboxes.use(id, async ({ contexts }) => contexts.remove(context));
  }

  async restart(id: string, context: string, { signal }: Signal): Promise<ContextInfo> {
    return this.#sandboxes.use(id, async ({ contexts }) => infoOf(await contexts.restart(context, signal)));
  }

  async interrupt(id: string, context: string): Promise<void> {
    return this.#sandboxes.use(id, async ({ contexts }) => contexts.interrupt(context));
  }
}

function infoOf({ id, language, cwd, alive }: GuestContext): ContextInfo {
  return { id, language, cwd, state: alive ? "running" : "ended" };
}

// Contexts of E2B's code interpreter: interpreters of ours.

import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { bodyOf, type SandboxWork } from "../work.ts";
import { ourLanguage, theirLanguage } from "./language.ts";
import type { ContextInfo } from "../../api/contexts.ts";
import type { AnyAnswer } from "../../http/handler.ts";

/** Where code begins unless it is told otherwise, in a sandbox that has it */
const HOME = "/home/user";

const createRequest = z.object({ language: z.string().nullish(), cwd: z.string().min(1).max(4096).nullish() });

export async function listContexts({ sandbox, services }: SandboxWork): Promise<AnyAnswer> {
  return { status: 200, body: (await services.manager.contexts.list(sandbox.id)).map(shown) };
}

export async function createContext(work: SandboxWork): Promise<AnyAnswer> {
  const { sandbox, services, caller } = work;
  const { language, cwd } = await bodyOf(work, createRequest);
  const request = { language: ourLanguage(language ?? "python") };
  const create = async (at: string): Promise<ContextInfo> => services.manager.contexts.create(sandbox.id, { ...request, cwd: at }, caller);
  return { status: 200, body: shown(cwd ? await create(cwd) : await atHome(create)) };
}

export async function removeContext({ sandbox, services }: SandboxWork, context: string): Promise<AnyAnswer> {
  await known({ sandbox, services }, context);
  await services.manager.contexts.remove(sandbox.id, context);
  return { status: 204 };
}

export async function restartContext({ sandbox, services, caller }: SandboxWork, context: string): Promise<AnyAnswer> {
  await known({ sandbox, services }, context);
  await services.manager.contexts.restart(sandbox.id, context, caller);
  return { status: 204 };
}

/** Where code without a context runs: in the first interpreter of its language */
export async function contextOf({ sandbox, services, caller }: SandboxWork, language: string): Promise<string> {
  const request = { language: ourLanguage(language) };
  const { id } = await atHome(async (cwd) => services.manager.contexts.ensure(sandbox.id, { ...request, cwd }, caller));
  return id;
}

/** One that is there and runs; an interpreter that code has ended is put up again, as clients are used to */
export async function liveContext({ sandbox, services, caller }: SandboxWork, context: string): Promise<string> {
  const { id, state } = await known({ sandbox, services }, context);
  if (state === "ended") await services.manager.contexts.restart(sandbox.id, id, caller);
  return id;
}

async function known({ sandbox, services }: Pick<SandboxWork, "sandbox" | "services">, context: string): Promise<ContextInfo> {
  const found = (await services.manager.contexts.list(sandbox.id)).find(({ id }) => id === context);
  if (!found) throw new ForkdError("NOT_FOUND", `Context ${context} not found`);
  return found;
}

/** Sandboxes of other templates may have no such folder */
async function atHome<T>(start: (cwd: string) => Promise<T>): Promise<T> {
  try {
    return await start(HOME);
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "EXEC_FAILED") throw error;
    return start("/");
  }
}

function shown({ id, language, cwd }: ContextInfo): { id: string; language: string; cwd: string } {
  return { id, language: theirLanguage(language), cwd };
}

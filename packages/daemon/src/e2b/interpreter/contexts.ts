// Code interpreter contexts, mapped to forkd's contexts.

import * as z from "zod";
import { ForkdError } from "@forkd/runtime/errors";
import { bodyOf, type SandboxWork } from "../work.ts";
import { ourLanguage, theirLanguage } from "./language.ts";
import type { ContextInfo } from "../../api/contexts.ts";
import type { Answer } from "../../dispatch/answer.ts";

/** Default working directory of code, if it exists in the guest */
const HOME = "/home/user";

const createRequest = z.object({ language: z.string().nullish(), cwd: z.string().min(1).max(4096).nullish() });

export async function listContexts({ sandbox, services, caller }: SandboxWork): Promise<Answer> {
  return { status: 200, body: (await services.manager.contexts.list(sandbox.id, caller)).map(shown) };
}

export async function createContext(work: SandboxWork): Promise<Answer> {
  const { sandbox, services, caller } = work;
  const { language, cwd } = await bodyOf(work, createRequest);
  const request = { language: ourLanguage(language ?? "python") };
  const create = async (at: string): Promise<ContextInfo> => services.manager.contexts.create(sandbox.id, { ...request, cwd: at }, caller);
  return { status: 200, body: shown(cwd ? await create(cwd) : await atHome(create)) };
}

export async function removeContext({ sandbox, services, caller }: SandboxWork, context: string): Promise<Answer> {
  await known({ sandbox, services, caller }, context);
  await services.manager.contexts.remove(sandbox.id, context, caller);
  return { status: 204 };
}

export async function restartContext({ sandbox, services, caller }: SandboxWork, context: string): Promise<Answer> {
  await known({ sandbox, services, caller }, context);
  await services.manager.contexts.restart(sandbox.id, context, caller);
  return { status: 204 };
}

/** Default context of a language: its first interpreter */
export async function contextOf({ sandbox, services, caller }: SandboxWork, language: string): Promise<ContextInfo> {
  const request = { language: ourLanguage(language) };
  return atHome(async (cwd) => services.manager.contexts.ensure(sandbox.id, { ...request, cwd }, caller));
}

/** Returns a running context. Restarts its interpreter if code ended it, as clients expect */
export async function liveContext({ sandbox, services, caller }: SandboxWork, context: string): Promise<ContextInfo> {
  const found = await known({ sandbox, services, caller }, context);
  return found.state === "ended" ? services.manager.contexts.restart(sandbox.id, found.id, caller) : found;
}

async function known({ sandbox, services, caller }: Omit<SandboxWork, "call" | "request">, context: string): Promise<ContextInfo> {
  const found = (await services.manager.contexts.list(sandbox.id, caller)).find(({ id }) => id === context);
  if (!found) throw new ForkdError("NOT_FOUND", `Context ${context} not found`);
  return found;
}

/** Falls back to `/`: sandboxes of other templates may lack HOME */
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

// Sandboxes: made, opened, listed, ended.

import * as z from "zod";
import { env, metadata } from "../../api/common.ts";
import { ForkdError } from "../../errors.ts";
import { forkdId } from "../ids.ts";
import { inheritedOf, PUBLIC_KEY } from "../lifecycle.ts";
import { unsupported } from "../unsupported.ts";
import { bodyOf, type ControlWork } from "../work.ts";
import { networkFields, policyOf } from "./network.ts";
import { detailed, opened } from "./view.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { AnyAnswer } from "../../http/handler.ts";

const MAX_SECS = 366 * 24 * 3600;
/** Of the older path, whose clients always say it */
const SHORT_SECS = 15;
const DEFAULT_SECS = 300;

export const seconds = z.number().min(0).max(MAX_SECS);

const createRequest = z.object({
  templateID: z.string().min(1).max(256),
  timeout: seconds.nullish(),
  metadata: metadata.nullish(),
  envVars: env.nullish(),
  allow_internet_access: z.boolean().nullish(),
  autoPause: z.boolean().nullish(),
  autoPauseMemory: z.boolean().nullish(),
  autoResume: z.object({ enabled: z.boolean().nullish() }).nullish(),
  network: networkFields.nullish(),
  iam: z.unknown().optional(),
  mcp: z.unknown().optional(),
  volumeMounts: z.array(z.unknown()).nullish(),
});

const timeoutRequest = z.object({ timeout: seconds });
const connectRequest = z.object({ timeout: seconds.nullish(), memory: z.boolean().nullish(), autoPause: z.boolean().nullish() });
const pauseRequest = z.object({ memory: z.boolean().nullish() });
const refreshRequest = z.object({ duration: seconds.nullish() });

export async function createSandbox(work: ControlWork): Promise<AnyAnswer> {
  const { services, caller, call } = work;
  const request = await bodyOf(work, createRequest);
  if (request.autoPauseMemory === false) throw withoutMemory();
  if (request.volumeMounts?.length) throw unsupported("volumes");
  if (request.mcp !== undefined && request.mcp !== null) throw unsupported("an MCP gateway in the sandbox");
  if (request.iam !== undefined && request.iam !== null) throw unsupported("identities of sandboxes (iam)");
  const network = request.network ?? {};
  const template = await services.templates.find(request.templateID, caller);
  const timeout = request.timeout ?? (call.path.startsWith("/v2/") ? DEFAULT_SECS : SHORT_SECS);
  const [sandbox] = await services.manager.sandboxes.create(
    {
      // by its id: a tag may mean another one by now
      snapshot_tag: template.id,
      n: 1,
      per_item: false,
      ttl_secs: lifetimeOf(timeout),
      env: request.envVars ?? undefined,
      metadata: {
        ...request.metadata,
        ...inheritedOf(template.metadata),
        ...(network.allowPublicTraffic === true ? { [PUBLIC_KEY]: "true" } : {}),
      },
      network: policyOf(network, request.allow_internet_access),
      on_timeout: request.autoPause ? "suspend" : "end",
      auto_resume: request.autoResume?.enabled ?? false,
    },
    caller,
  );
  if (!sandbox) throw new ForkdError("FORK_FAILED", `Cannot make a sandbox of ${template.tag}: there is none.`);
  return { status: 201, body: opened(sandbox, services) };
}

/** Its time can only become longer by it; one that sleeps is woken up */
export async function connectSandbox(work: ControlWork): Promise<AnyAnswer> {
  const { services, caller } = work;
  const { timeout, memory, autoPause } = await bodyOf(work, connectRequest);
  if (memory === false) throw withoutMemory();
  const { sandboxes, suspension } = services.manager;
  const sandbox = living(work);
  const asked = lifetimeOf(timeout ?? DEFAULT_SECS);
  const { id, state, expires_at_unix: ends } = sandbox;
  const onTimeout = autoPause ? { on_timeout: "suspend" as const } : {};
  if (state === "running") {
    if (ends !== null && ends < Date.now() / 1000 + asked) await sandboxes.update(id, { ttl_secs: asked, ...onTimeout }, caller);
    return { status: 200, body: opened(sandbox, services) };
  }
  await sandboxes.update(id, { ttl_secs: asked, ...onTimeout }, caller);
  return { status: 201, body: opened(await suspension.resume(id, caller), services) };
}

/** Memory and disk are saved, and everything else is given back */
export async function pauseSandbox(work: ControlWork): Promise<AnyAnswer> {
  const { services, caller } = work;
  const { memory } = await bodyOf(work, pauseRequest);
  if (memory === false) throw withoutMemory();
  const { id, state } = living(work);
  // the SDKs take it for a no, not for a failure
  if (state === "suspended") throw new ForkdError("SANDBOX_SUSPENDED", `Sandbox ${work.params["id"]} is already paused.`);
  await services.manager.suspension.suspend(id, caller);
  return { status: 204 };
}

function withoutMemory(): ForkdError {
  return unsupported("a sandbox that sleeps without its memory (memory: false)");
}

export async function killSandbox({ params, services, caller }: ControlWork): Promise<AnyAnswer> {
  await services.manager.sandboxes.remove(forkdId(params["id"] ?? ""), caller);
  return { status: 204 };
}

export function getSandbox(work: ControlWork): AnyAnswer {
  return { status: 200, body: detailed(living(work), work.services) };
}

export async function setTimeoutOf(work: ControlWork): Promise<AnyAnswer> {
  const { timeout } = await bodyOf(work, timeoutRequest);
  await work.services.manager.sandboxes.update(living(work).id, { ttl_secs: lifetimeOf(timeout) }, work.caller);
  return { status: 204 };
}

export async function refreshSandbox(work: ControlWork): Promise<AnyAnswer> {
  const { duration } = await bodyOf(work, refreshRequest);
  const { id, expires_at_unix: ends } = living(work);
  const asked = lifetimeOf(duration ?? SHORT_SECS);
  if (ends !== null && ends < Date.now() / 1000 + asked) await work.services.manager.sandboxes.update(id, { ttl_secs: asked }, work.caller);
  return { status: 204 };
}

/** One that has ended by itself is still known to us for a while; at E2B it is not there */
export function living({ params, services }: ControlWork): SandboxInfo {
  const id = params["id"] ?? "";
  const sandbox = services.manager.sandboxes.get(forkdId(id));
  if (sandbox.state !== "ended" && sandbox.state !== "lost") return sandbox;
  throw new ForkdError("NOT_FOUND", `There is no sandbox ${id}: ${sandbox.reason ?? "it has ended"}.`);
}

/** A whole number of seconds, and at least one: the end of a sandbox is a moment in the future */
export function lifetimeOf(timeout: number): number {
  return Math.max(1, Math.ceil(timeout));
}

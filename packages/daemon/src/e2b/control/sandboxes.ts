// E2B control API: creation, connection, pause and removal of sandboxes.

import * as z from "zod";
import { env, metadata } from "../../api/common.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { forkdId } from "../../dispatch/e2b-id.ts";
import { HOST_KEY, PUBLIC_KEY } from "../../dispatch/port-metadata.ts";
import { inheritedOf } from "../lifecycle.ts";
import { unsupported } from "../unsupported.ts";
import { bodyOf, type ControlWork } from "../work.ts";
import { networkFields, policyOf } from "./network.ts";
import { detailed, opened } from "./view.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { Answer } from "../../dispatch/answer.ts";

const MAX_SECS = 366 * 24 * 3600;
/** Default of the v1 paths; their clients always send a timeout */
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

export async function createSandbox(work: ControlWork): Promise<Answer> {
  const { services, caller, call } = work;
  const request = await bodyOf(work, createRequest);
  if (request.volumeMounts?.length) throw unsupported("volumes");
  if (request.mcp !== undefined && request.mcp !== null) throw unsupported("an MCP gateway in the sandbox");
  if (request.iam !== undefined && request.iam !== null) throw unsupported("identities of sandboxes (iam)");
  const network = request.network ?? {};
  const template = await services.templates.find(request.templateID, caller);
  const timeout = request.timeout ?? (call.path.startsWith("/v2/") ? DEFAULT_SECS : SHORT_SECS);
  const [sandbox] = await services.manager.sandboxes.create(
    {
      // by id: the tag may have moved to another snapshot since the lookup
      snapshot_tag: template.id,
      n: 1,
      per_item: false,
      ttl_secs: lifetimeOf(timeout),
      env: request.envVars ?? undefined,
      metadata: {
        ...request.metadata,
        ...inheritedOf(template.metadata),
        ...(network.allowPublicTraffic === true ? { [PUBLIC_KEY]: "true" } : {}),
        ...(network.maskRequestHost ? { [HOST_KEY]: network.maskRequestHost } : {}),
      },
      network: policyOf(network, request.allow_internet_access),
      on_timeout: request.autoPause ? "suspend" : "end",
      auto_resume: request.autoResume?.enabled ?? false,
    },
    caller,
  );
  if (!sandbox) throw new ForkdError("FORK_FAILED", `Cannot make a sandbox of ${template.tag}: there is none.`);
  if (request.autoPauseMemory === false) services.manager.suspension.setKeepMemory(sandbox.id, false, caller);
  return { status: 201, body: opened(sandbox, services) };
}

/** Only extends the lifetime. Resumes a suspended sandbox */
export async function connectSandbox(work: ControlWork): Promise<Answer> {
  const { services, caller } = work;
  const { timeout, memory, autoPause } = await bodyOf(work, connectRequest);
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
  return { status: 201, body: opened(await suspension.resume(id, caller, { keepMemory: memory !== false }), services) };
}

/** Saves memory and disk, or only the disk, and frees the VM */
export async function pauseSandbox(work: ControlWork): Promise<Answer> {
  const { services, caller } = work;
  const { memory } = await bodyOf(work, pauseRequest);
  const { id, state } = living(work);
  // the SDKs read this status as `false`, not as a failure
  if (state === "suspended") throw new ForkdError("SANDBOX_SUSPENDED", `Sandbox ${work.params["id"]} is already paused.`);
  await services.manager.suspension.suspend(id, caller, { keepMemory: memory !== false });
  return { status: 204 };
}

export async function killSandbox({ params, services, caller }: ControlWork): Promise<Answer> {
  await services.manager.sandboxes.remove(forkdId(params["id"] ?? ""), caller);
  return { status: 204 };
}

export function getSandbox(work: ControlWork): Answer {
  return { status: 200, body: detailed(living(work), work.services, work.caller) };
}

export async function setTimeoutOf(work: ControlWork): Promise<Answer> {
  const { timeout } = await bodyOf(work, timeoutRequest);
  await work.services.manager.sandboxes.update(living(work).id, { ttl_secs: lifetimeOf(timeout) }, work.caller);
  return { status: 204 };
}

export async function refreshSandbox(work: ControlWork): Promise<Answer> {
  const { duration } = await bodyOf(work, refreshRequest);
  const { id, expires_at_unix: ends } = living(work);
  const asked = lifetimeOf(duration ?? SHORT_SECS);
  if (ends !== null && ends < Date.now() / 1000 + asked) await work.services.manager.sandboxes.update(id, { ttl_secs: asked }, work.caller);
  return { status: 204 };
}

/** Throws NOT_FOUND for an ended sandbox: forkd keeps it for a while, E2B does not */
export function living({ params, services, caller }: ControlWork): SandboxInfo {
  const id = params["id"] ?? "";
  const sandbox = services.manager.sandboxes.get(forkdId(id), caller);
  if (sandbox.state !== "ended" && sandbox.state !== "lost") return sandbox;
  throw new ForkdError("NOT_FOUND", `There is no sandbox ${id}: ${sandbox.reason ?? "it has ended"}.`);
}

/** Rounds up to whole seconds, at least 1: the end time must be in the future */
export function lifetimeOf(timeout: number): number {
  return Math.max(1, Math.ceil(timeout));
}

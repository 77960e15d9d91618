// E2B control API: template builds, file uploads and build status.

import * as z from "zod";
import { ForkdError } from "@forkd/runtime/errors";
import { readPieces } from "../../streams/body.ts";
import { uploadOf } from "../access.ts";
import { bodyOf, type ControlWork } from "../work.ts";
import { partsOf, tagOf } from "../templates/templates.ts";
import { unsupported } from "../unsupported.ts";
import { tag } from "./templates.ts";
import type { Answer } from "../../dispatch/answer.ts";

const DEFAULT_TAG = "default";
const MAX_STEPS = 1000;
/** Lifetime of an upload URL, which the SDK uses immediately */
const UPLOAD_WITHIN_SECS = 3600;

const shapeFields = {
  cpuCount: z.int().min(1).max(64).nullish(),
  memoryMB: z
    .int()
    .min(64)
    .max(1024 * 1024)
    .nullish(),
};
const buildRequest = z.object({
  name: z.string().min(1).max(256).optional(),
  alias: z.string().min(1).max(256).optional(),
  tags: z.array(tag).max(16).nullish(),
  ...shapeFields,
});
const registry = z.object({ type: z.string(), username: z.string().optional(), password: z.string().optional() });
const startRequest = z.object({
  fromImage: z.string().min(1).max(512).nullish(),
  fromTemplate: z.string().min(1).max(256).nullish(),
  fromImageRegistry: registry.nullish(),
  steps: z
    .array(
      z.object({
        type: z.string(),
        args: z.array(z.string()).nullish(),
        filesHash: z.string().min(1).max(128).nullish(),
        force: z.boolean().nullish(),
      }),
    )
    .max(MAX_STEPS)
    .nullish(),
  startCmd: z.string().nullish(),
  readyCmd: z.string().nullish(),
  force: z.boolean().nullish(),
});

export async function requestBuild(work: ControlWork): Promise<Answer> {
  const { name, alias, tags, cpuCount, memoryMB } = await bodyOf(work, buildRequest);
  const given = name ?? alias;
  if (given === undefined) throw new ForkdError("BAD_REQUEST", "Cannot build a template: name: is required.");
  const parts = partsOf(given);
  const template = tagOf(parts.name);
  const all = [...new Set([...(given.includes(":") ? [parts.tag] : []), ...(tags ?? [])])];
  const named = all.length === 0 ? [DEFAULT_TAG] : all;
  // validate every name before the build starts
  for (const each of named) tagOf(`${template}:${each}`);
  const shape = { vcpus: cpuCount ?? undefined, memoryMiB: memoryMB ?? undefined };
  const { id } = work.services.builds.request(template, named, shape, work.caller);
  return { status: 202, body: { templateID: template, buildID: id, names: [template], tags: named, aliases: [template], public: false } };
}

/** Upload URL for the files of a step; the token in the URL is the credential */
export async function getUpload({ params, request, services, caller }: ControlWork): Promise<Answer> {
  const { id: template = "", hash = "" } = params;
  const { project, principal } = caller;
  const present = await services.builds.uploads.has(project, template, hash);
  const expires = String(Math.floor(Date.now() / 1000) + UPLOAD_WITHIN_SECS);
  const token = services.accessTokens.of(uploadOf(project, { template, hash, expires, maker: principal }), "upload");
  const query = new URLSearchParams({ by: principal, project, expires, token });
  const origin = `${services.daemon.tls ? "https" : "http"}://${request.headers.host ?? services.daemon.bind ?? ""}`;
  const url = `${origin}/templates/${encodeURIComponent(template)}/files/${encodeURIComponent(hash)}?${query.toString()}`;
  return { status: 201, body: { present, url } };
}

export async function putUpload({ params, request, services, caller }: ControlWork): Promise<Answer> {
  const { id: template = "", hash = "" } = params;
  await services.builds.uploads.write(caller.project, template, hash, readPieces(request, services.limits));
  return { status: 200, body: {} };
}

export async function startBuild(work: ControlWork): Promise<Answer> {
  const { fromImage, fromTemplate, fromImageRegistry: login, steps, startCmd, readyCmd, force } = await bodyOf(work, startRequest);
  const { id = "", build = "" } = work.params;
  if (login && (login.username === undefined || login.password === undefined))
    throw unsupported(`the registry's kind of login: ${login.type}`);
  const recipe = {
    fromImage: fromImage ?? undefined,
    fromTemplate: fromTemplate ?? undefined,
    registry: login ? { username: login.username ?? "", password: login.password ?? "" } : undefined,
    steps: (steps ?? []).map(({ type, args, filesHash, force: isForced }) => ({
      type,
      args: args ?? [],
      filesHash: filesHash ?? undefined,
      force: isForced ?? undefined,
    })),
    startCmd: startCmd ?? undefined,
    readyCmd: readyCmd ?? undefined,
    force: force ?? undefined,
  };
  work.services.builds.start(id, build, recipe, work.caller);
  return { status: 202, body: {} };
}

export function getBuildStatus({ params, call, services, caller }: ControlWork): Answer {
  const { id = "", build = "" } = params;
  const offset = Number(call.query.get("logsOffset") ?? 0);
  return { status: 200, body: services.builds.status(caller, id, build, Number.isInteger(offset) && offset > 0 ? offset : 0) };
}

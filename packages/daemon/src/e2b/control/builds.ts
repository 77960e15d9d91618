// Builds of templates: asked for, given files and steps, and followed.

import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { readPieces } from "../../http/body.ts";
import { bodyOf, type ControlWork } from "../work.ts";
import { tagOf } from "../templates/templates.ts";
import { unsupported } from "../unsupported.ts";
import type { AnyAnswer } from "../../http/handler.ts";

const DEFAULT_TAG = "default";
const MAX_STEPS = 1000;

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
  tags: z.array(z.string().min(1).max(64)).max(16).nullish(),
  ...shapeFields,
});
const registry = z.object({ type: z.string(), username: z.string().optional(), password: z.string().optional() });
const startRequest = z.object({
  fromImage: z.string().min(1).max(512).nullish(),
  fromTemplate: z.string().min(1).max(256).nullish(),
  fromImageRegistry: registry.nullish(),
  steps: z
    .array(z.object({ type: z.string(), args: z.array(z.string()).nullish(), filesHash: z.string().min(1).max(128).nullish() }))
    .max(MAX_STEPS)
    .nullish(),
  startCmd: z.string().nullish(),
  readyCmd: z.string().nullish(),
});

export async function requestBuild(work: ControlWork): Promise<AnyAnswer> {
  const { name, alias, tags, cpuCount, memoryMB } = await bodyOf(work, buildRequest);
  const given = name ?? alias;
  if (given === undefined) throw new ForkdError("BAD_REQUEST", "Cannot build a template: name: is required.");
  const [bare = "", own] = given.split(":");
  const template = tagOf(bare);
  const all = [...new Set([...(own === undefined ? [] : [own]), ...(tags ?? [])])];
  const named = all.length === 0 ? [DEFAULT_TAG] : all;
  // each is looked at before anything is built
  for (const tag of named) tagOf(`${template}:${tag}`);
  const shape = { vcpus: cpuCount ?? undefined, memoryMiB: memoryMB ?? undefined };
  const { id } = work.services.builds.request(template, named, shape);
  return { status: 202, body: { templateID: template, buildID: id, names: [template], tags: named, aliases: [template], public: false } };
}

/** Where the files of a step are to be sent, by whoever has the address */
export async function getUpload({ params, request, services, caller }: ControlWork): Promise<AnyAnswer> {
  const { id: template = "", hash = "" } = params;
  const present = await services.builds.uploads.has(template, hash);
  const token = services.accessTokens.of({ id: `${template}/${hash}`, created_by: caller.principal }, "upload");
  const query = new URLSearchParams({ by: caller.principal, token });
  const origin = `${services.daemon.tls ? "https" : "http"}://${request.headers.host ?? services.daemon.bind ?? ""}`;
  const url = `${origin}/templates/${encodeURIComponent(template)}/files/${encodeURIComponent(hash)}?${query.toString()}`;
  return { status: 201, body: { present, url } };
}

export async function putUpload({ params, request, services }: ControlWork): Promise<AnyAnswer> {
  const { id: template = "", hash = "" } = params;
  await services.builds.uploads.write(template, hash, readPieces(request, services.limits.uploadIdleMs));
  return { status: 200, body: {} };
}

export async function startBuild(work: ControlWork): Promise<AnyAnswer> {
  const { fromImage, fromTemplate, fromImageRegistry: login, steps, startCmd, readyCmd } = await bodyOf(work, startRequest);
  const { id = "", build = "" } = work.params;
  if (login && (login.username === undefined || login.password === undefined))
    throw unsupported(`the registry's way to sign in: ${login.type}`);
  const recipe = {
    fromImage: fromImage ?? undefined,
    fromTemplate: fromTemplate ?? undefined,
    registry: login ? { username: login.username ?? "", password: login.password ?? "" } : undefined,
    steps: (steps ?? []).map(({ type, args, filesHash }) => ({ type, args: args ?? [], filesHash: filesHash ?? undefined })),
    startCmd: startCmd ?? undefined,
    readyCmd: readyCmd ?? undefined,
  };
  work.services.builds.start(id, build, recipe, work.caller);
  return { status: 202, body: {} };
}

export function getBuildStatus({ params, call, services }: ControlWork): AnyAnswer {
  const { id = "", build = "" } = params;
  const offset = Number(call.query.get("logsOffset") ?? 0);
  return { status: 200, body: services.builds.status(id, build, Number.isInteger(offset) && offset > 0 ? offset : 0) };
}

// E2B control API: templates, which are tagged snapshots.

import { createHash } from "node:crypto";
import * as z from "zod";
import { ForkdError } from "@forkd/runtime/errors";
import { isReservedTag } from "../../service/reserved-tags.ts";
import { isLayer } from "../../recipe/layer.ts";
import { partsOf, tagOf } from "../templates/templates.ts";
import { bodyOf, type ControlWork } from "../work.ts";
import { ENVD_VERSION, timeOf } from "./view.ts";
import type { SnapshotInfo } from "../../api/snapshot.ts";
import type { Answer } from "../../dispatch/answer.ts";

const DEFAULT_TAG = "default";

/** Tag without a template name: tagOf() alone would accept `name:` and `:tag` */
export const tag = z.string().regex(/^[\w.-]{1,64}$/, "must be a tag of letters, digits, '_', '.' and '-', without the template's name");
const tags = z.array(tag).min(1).max(64);

const assignRequest = z.object({ target: z.string().min(1), tags });
const removeRequest = z.object({ name: z.string().min(1), tags });

export async function listTemplates({ services, caller }: ControlWork): Promise<Answer> {
  const { items } = await services.manager.snapshots.list({ status: "ready" }, caller);
  return { status: 200, body: items.filter((each) => !each.ephemeral && !isLayer(each)).map(shown) };
}

export async function getTemplate({ params, services, caller }: ControlWork): Promise<Answer> {
  const snapshot = await services.manager.snapshots.get(tagOf(params["id"] ?? ""), caller);
  return { status: 200, body: { ...shown(snapshot), builds: [] } };
}

/** E2B's own templates always exist: they are built on first use */
export async function getAlias({ params, services, caller }: ControlWork): Promise<Answer> {
  const tag = tagOf(params["alias"] ?? "");
  if (!isReservedTag(tag)) await services.manager.snapshots.get(tag, caller);
  return { status: 200, body: { templateID: tag, public: false } };
}

/** The data is kept while sandboxes use it */
export async function deleteTemplate({ params, services, caller }: ControlWork): Promise<Answer> {
  const { tag } = await services.manager.snapshots.get(tagOf(params["id"] ?? ""), caller);
  await services.manager.snapshots.remove(tag, { force: true, cascade: undefined }, caller);
  await services.recipes.forget(tag, caller);
  return { status: 204 };
}

export async function listTags({ params, services, caller }: ControlWork): Promise<Answer> {
  const name = tagOf(params["id"] ?? "");
  const { items } = await services.manager.snapshots.list({ status: "ready" }, caller);
  const named = items.filter(({ tag }) => tag === name || tag.startsWith(`${name}.`));
  if (named.length === 0) throw new ForkdError("NOT_FOUND", `There is no template ${name}.`);
  const tags = named.map((snapshot) => ({
    tag: snapshot.tag === name ? DEFAULT_TAG : snapshot.tag.slice(name.length + 1),
    buildID: buildIdOf(snapshot),
    createdAt: timeOf(snapshot.created_at_unix),
  }));
  return { status: 200, body: tags };
}

export async function assignTags(work: ControlWork): Promise<Answer> {
  const { target, tags: given } = await bodyOf(work, assignRequest);
  const { name } = partsOf(target);
  // validate every name before the first copy
  const wanted = given.map((each) => tagOf(`${name}:${each}`));
  const source = await work.services.manager.snapshots.get(tagOf(target), work.caller);
  for (const to of wanted) if (to !== source.tag) await work.services.templates.copy(source, to, work.caller);
  return { status: 201, body: { tags: given, buildID: buildIdOf(source) } };
}

export async function removeTags(work: ControlWork): Promise<Answer> {
  const { name, tags: given } = await bodyOf(work, removeRequest);
  const wanted = given.map((each) => tagOf(`${name}:${each}`));
  for (const each of wanted) await work.services.manager.snapshots.remove(each, { force: true, cascade: undefined }, work.caller);
  return { status: 204 };
}

function shown(snapshot: SnapshotInfo): object {
  const { tag, vcpus, memory_mib: memory, disk_mib: disk, created_at_unix: at } = snapshot;
  return {
    templateID: tag,
    buildID: buildIdOf(snapshot),
    cpuCount: vcpus,
    memoryMB: memory,
    diskSizeMB: disk ?? memory,
    public: snapshot.visibility === "public",
    aliases: [tag],
    names: [tag],
    createdAt: timeOf(at),
    updatedAt: timeOf(at),
    createdBy: null,
    lastSpawnedAt: null,
    spawnCount: 0,
    buildCount: 1,
    envdVersion: ENVD_VERSION,
    buildStatus: "ready",
  };
}

/** Clients expect a UUID */
function buildIdOf({ id }: SnapshotInfo): string {
  const hex = createHash("sha256").update(id).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

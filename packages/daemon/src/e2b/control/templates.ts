// Templates by name: snapshots under their tags.

import { createHash } from "node:crypto";
import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { BUILT_IN } from "../templates/built-in.ts";
import { tagOf } from "../templates/templates.ts";
import { bodyOf, type ControlWork } from "../work.ts";
import { ENVD_VERSION, timeOf } from "./view.ts";
import type { SnapshotInfo } from "../../api/snapshot.ts";
import type { AnyAnswer } from "../../http/handler.ts";

const DEFAULT_TAG = "default";

const assignRequest = z.object({ target: z.string().min(1), tags: z.array(z.string().min(1)).min(1).max(64) });
const removeRequest = z.object({ name: z.string().min(1), tags: z.array(z.string().min(1)).min(1).max(64) });

export async function listTemplates({ services }: ControlWork): Promise<AnyAnswer> {
  const { items } = await services.manager.snapshots.list({ status: "ready" });
  return { status: 200, body: items.filter(({ ephemeral }) => !ephemeral).map(shown) };
}

export async function getTemplate({ params, services }: ControlWork): Promise<AnyAnswer> {
  const snapshot = await services.manager.snapshots.get(tagOf(params["id"] ?? ""));
  return { status: 200, body: { ...shown(snapshot), builds: [] } };
}

/** Those that are made on first use exist already to whoever asks */
export async function getAlias({ params, services }: ControlWork): Promise<AnyAnswer> {
  const tag = tagOf(params["alias"] ?? "");
  if (!Object.hasOwn(BUILT_IN, tag)) await services.manager.snapshots.get(tag);
  return { status: 200, body: { templateID: tag, public: false } };
}

/** What sandboxes still need of it stays as long as they do */
export async function deleteTemplate({ params, services, caller }: ControlWork): Promise<AnyAnswer> {
  const { tag } = await services.manager.snapshots.get(tagOf(params["id"] ?? ""));
  await services.manager.snapshots.remove(tag, { force: true, cascade: undefined }, caller);
  return { status: 204 };
}

export async function listTags({ params, services }: ControlWork): Promise<AnyAnswer> {
  const name = tagOf(params["id"] ?? "");
  const { items } = await services.manager.snapshots.list({ status: "ready" });
  const named = items.filter(({ tag }) => tag === name || tag.startsWith(`${name}.`));
  if (named.length === 0) throw new ForkdError("NOT_FOUND", `There is no template ${name}.`);
  const tags = named.map((snapshot) => ({
    tag: snapshot.tag === name ? DEFAULT_TAG : snapshot.tag.slice(name.length + 1),
    buildID: buildIdOf(snapshot),
    createdAt: timeOf(snapshot.created_at_unix),
  }));
  return { status: 200, body: tags };
}

export async function assignTags(work: ControlWork): Promise<AnyAnswer> {
  const { target, tags } = await bodyOf(work, assignRequest);
  const source = await work.services.manager.snapshots.get(tagOf(target));
  const [name = ""] = target.split(":");
  for (const tag of tags) {
    const to = tagOf(`${name}:${tag}`);
    if (to !== source.tag) await work.services.templates.copy(source, to, work.caller);
  }
  return { status: 201, body: { tags, buildID: buildIdOf(source) } };
}

export async function removeTags(work: ControlWork): Promise<AnyAnswer> {
  const { name, tags } = await bodyOf(work, removeRequest);
  for (const tag of tags)
    await work.services.manager.snapshots.remove(tagOf(`${name}:${tag}`), { force: true, cascade: undefined }, work.caller);
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
    public: false,
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

/** Clients take it for a UUID */
function buildIdOf({ id }: SnapshotInfo): string {
  const hex = createHash("sha256").update(id).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

// E2B control API: snapshots and forks of running sandboxes.

import * as z from "zod";
import { forkdId } from "../../dispatch/e2b-id.ts";
import { inheritedOf } from "../lifecycle.ts";
import { tagOf } from "../templates/templates.ts";
import { bodyOf, type ControlWork } from "../work.ts";
import { pageOf } from "./list.ts";
import { lifetimeOf, living, seconds } from "./sandboxes.ts";
import { opened } from "./view.ts";
import type { SnapshotInfo } from "../../api/snapshot.ts";
import type { Answer } from "../../dispatch/answer.ts";

const MAX_FORKS = 100;
const DEFAULT_SECS = 300;

const snapshotRequest = z.object({ name: z.string().min(1).max(256).nullish() });
const forkRequest = z.object({ timeout: seconds.nullish(), count: z.int().min(1).max(MAX_FORKS).nullish() });

export async function createSnapshot(work: ControlWork): Promise<Answer> {
  const { services, caller } = work;
  const { name } = await bodyOf(work, snapshotRequest);
  const { id, metadata: own } = living(work);
  const request = { wait: true, metadata: inheritedOf(own) };
  const { branches, snapshots } = services.manager;
  if (!name) return { status: 201, body: shown((await branches.branch(id, request, caller)).info) };
  const tag = tagOf(name);
  const isTaken = await services.templates.exists(tag, caller);
  // a reused name moves to the new snapshot, which needs the scope admin; otherwise branch() refuses the taken tag
  if (!isTaken || !caller.isAdmin) return { status: 201, body: shown((await branches.branch(id, { ...request, tag }, caller)).info) };
  const { info } = await branches.branch(id, request, caller);
  await services.templates.free(tag, caller);
  return { status: 201, body: shown(await snapshots.update(info.tag, { tag }, caller)) };
}

/** Sorted by creation time, newest first */
export async function listSnapshots({ call: { query }, services, caller }: ControlWork): Promise<Answer> {
  const source = query.get("sandboxID");
  const name = query.get("name");
  const { items: all } = await services.manager.snapshots.list({ status: "ready" }, caller);
  const wanted = all
    .filter(({ branched_from: from, ephemeral }) => !ephemeral && (source === null ? from !== null : from === forkdId(source)))
    .filter(({ tag, id }) => name === null || tag === tagOf(name) || id === name)
    .toSorted((a, b) => (keyOf(a) < keyOf(b) ? 1 : -1));
  const { items, nextToken } = pageOf(wanted, keyOf, query, false);
  return { status: 200, body: items.map(shown), headers: nextToken === null ? {} : { "x-next-token": nextToken } };
}

/** All or nothing: the causes of a failure affect every fork */
export async function forkSandbox(work: ControlWork): Promise<Answer> {
  const { services, caller } = work;
  const { timeout, count } = await bodyOf(work, forkRequest);
  const { id, metadata } = living(work);
  const request = { n: count ?? 1, ttl_secs: lifetimeOf(timeout ?? DEFAULT_SECS), metadata };
  const { sandboxes } = await services.manager.branches.fork(id, request, caller);
  return { status: 201, body: sandboxes.map((sandbox) => ({ sandbox: opened(sandbox, services) })) };
}

function shown({ tag }: SnapshotInfo): object {
  return { snapshotID: tag, names: [tag] };
}

function keyOf({ created_at_unix: at, tag }: SnapshotInfo): string {
  return `${String(at).padStart(12, "0")}__${tag}`;
}

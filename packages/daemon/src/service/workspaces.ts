// Workspaces: named sandboxes that can be suspended and resumed.

import type { CreateWorkspace, WorkspaceInfo } from "../api/workspace.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { WorkspaceRow } from "../store/tables.ts";
import { newId } from "@forkd/runtime/util/id";
import { notFound } from "@forkd/runtime/util/not-found";
import type { Branches } from "./branches.ts";
import { isOf, shownName, storedName } from "../store/project-names.ts";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import type { Caller, Viewer } from "./caller.ts";
import { nowUnix, type Core } from "./core.ts";
import { limitFields, machineOf } from "./limit-fields.ts";
import type { Lineage } from "./lineage.ts";
import { spawnRequest } from "./older-api.ts";
import type { Entry, Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import { shortened } from "./saved-state.ts";
import type { Snapshots } from "./snapshots.ts";

/** bounded, because the tags of saved states contain the name */
const MAX_NAME = 40;

type Parts = { registry: Registry; sandboxes: Sandboxes; snapshots: Snapshots; branches: Branches; lineage: Lineage };

export class Workspaces {
  readonly #core: Core;
  readonly #parts: Parts;
  /** names of workspaces with a change in progress: one change at a time */
  readonly #changing = new Set<string>();

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#parts = parts;
  }

  async list(viewer: Viewer): Promise<WorkspaceInfo[]> {
    return this.#of(viewer).map((row) => this.#info(row));
  }

  async get(name: string, viewer: Viewer): Promise<WorkspaceInfo> {
    return this.#info(this.#row(name, viewer));
  }

  async create(request: CreateWorkspace, caller: Caller): Promise<WorkspaceInfo> {
    const { name, snapshot_tag } = request;
    if (name.length > MAX_NAME) throw new ForkdError("BAD_NAME", `Workspace ${JSON.stringify(name)} has more than ${MAX_NAME} characters.`);
    const { project } = caller;
    this.#parts.sandboxes.refuseCordoned();
    return this.alone(name, caller, async () => {
      if (this.#of(caller).some((row) => row.name === name))
        throw new ForkdError("EXISTS", `Cannot make workspace ${name}: it exists already.`);
      const snapshot = await this.#parts.snapshots.forkable(snapshot_tag, caller);
      const machine = machineOf(snapshot);
      const older = await spawnRequest(request, async (limits) => this.#parts.sandboxes.possibleLimits(limits, machine));
      const row: WorkspaceRow = {
        id: newId("ws", this.#core.node),
        project,
        name,
        source_snapshot_tag: storedName(snapshot_tag, project),
        state_tag: null,
        state_id: null,
        sandbox_id: null,
        created_at: nowUnix(),
        last_active: nowUnix(),
        ...limitFields(older.request),
        warnings: older.warnings,
      };
      return this.#start(row, snapshot, { caller, event: "workspace.created" });
    });
  }

  /** Saves the state and ends the sandbox. Crash-safe: either the old or the new state exists */
  async suspend(name: string, caller: Caller): Promise<WorkspaceInfo> {
    return this.alone(name, caller, async () => {
      const row = this.#row(name, caller);
      const entry = this.#liveEntry(row);
      if (!entry) throw new ForkdError("BAD_REQUEST", `Cannot suspend workspace ${name}: it is not running.`);
      const tag = await this.#freeTag(row);
      await this.#parts.branches.suspendFrom(entry.row.id, tag, caller, async ({ manifest }) => {
        const change = { state_id: manifest.id, state_tag: storedName(tag, row.project), sandbox_id: null, last_active: nowUnix() };
        this.#core.db.durably(() => this.#change(row, change, "workspace.suspended", caller));
      });
      await this.#parts.sandboxes.remove(entry.row.id, caller, `workspace ${name} was suspended`);
      // the previous state is now only a base of the new one: drop its tag
      if (row.state_id !== null) await this.#core.runtime.snapshots.untag(row.state_id);
      await this.#parts.lineage.collect();
      return this.get(name, caller);
    });
  }

  async resume(name: string, caller: Caller): Promise<WorkspaceInfo> {
    return this.alone(name, caller, async () => {
      const row = this.#row(name, caller);
      if (this.#liveEntry(row)) throw new ForkdError("BAD_REQUEST", `Cannot resume workspace ${name}: it is running.`);
      if (row.state_id === null)
        throw new ForkdError("NOT_FOUND", `Cannot resume workspace ${name}: it was never suspended and its sandbox is gone.`);
      const state = await this.#shortened(row, row.state_id, caller);
      const snapshot = await this.#core.runtime.snapshots.get(state.state_id);
      return this.#start({ ...row, ...state }, snapshot, { caller, event: "workspace.resumed" });
    });
  }

  async remove(name: string, caller: Caller): Promise<void> {
    await this.alone(name, caller, async () => {
      const row = this.#row(name, caller);
      const entry = this.#liveEntry(row);
      if (entry) await this.#parts.sandboxes.remove(entry.row.id, caller, `workspace ${name} was deleted`);
      // durable: a power failure must not restore a workspace whose removal was acknowledged
      this.#core.db.durably(() => {
        this.#core.tables.workspaces.delete(row.id);
        const { project, principal } = caller;
        this.#core.events.append({ type: "workspace.deleted", project, principal, metadata: { workspace: name } });
      });
      await this.#parts.lineage.collect();
    });
  }

  async #start(
    row: WorkspaceRow,
    snapshot: Snapshot,
    opts: { caller: Caller; event: "workspace.created" | "workspace.resumed" },
  ): Promise<WorkspaceInfo> {
    const { db, tables, events } = this.#core;
    const { caller } = opts;
    const request = { n: 1, ...limitFields(row), metadata: { workspace: row.name } };
    const facts = await this.#parts.sandboxes.facts(request, snapshot, caller, row.warnings);
    await this.#parts.sandboxes.fork(snapshot, {
      request,
      facts,
      caller,
      // one transaction: workspace and sandbox must never refer to each other only one way
      remember: ([info]) => {
        const changed = { ...row, sandbox_id: info?.id ?? null, last_active: nowUnix() };
        db.transaction(() => {
          if (opts.event === "workspace.created") tables.workspaces.insert(changed);
          else tables.workspaces.update(row.id, changed);
          events.append({ type: opts.event, project: row.project, principal: caller.principal, metadata: { workspace: row.name } });
          caller.remember?.(opts.event === "workspace.created" ? 201 : 200, {
            ...this.#info(changed),
            status: "running",
            live_sandbox_id: changed.sandbox_id,
          });
        });
      },
    });
    return this.get(row.name, caller);
  }

  /** The default tag, or a longer one if that is taken by the previous state or another snapshot */
  async #freeTag(row: WorkspaceRow): Promise<string> {
    const usual = `ws-${row.name}-state`;
    const stored = storedName(usual, row.project);
    const isTaken =
      this.#core.tables.snapshots.where("tag", stored).length > 0 || (await this.#core.runtime.snapshots.tagged(stored)) !== undefined;
    return isTaken ? `${usual}-${newId("ws").slice(3, 11)}` : usual;
  }

  async #shortened(row: WorkspaceRow, stateId: string, caller: Caller): Promise<{ state_id: string; state_tag: string | null }> {
    const saved = { id: stateId, newTag: async () => this.#freeTag(row), of: row.name };
    const short = await shortened(this.#core, this.#parts.snapshots, saved, caller);
    if (!short) return { state_id: stateId, state_tag: row.state_tag };
    const state = { state_id: short.id, state_tag: storedName(short.tag, row.project) };
    this.#core.tables.workspaces.update(row.id, state);
    return state;
  }

  #change(row: WorkspaceRow, change: Partial<WorkspaceRow>, event: "workspace.suspended", caller: Caller): void {
    this.#core.db.transaction(() => {
      this.#core.tables.workspaces.update(row.id, change);
      const { project, name } = row;
      this.#core.events.append({ type: event, project, principal: caller.principal, metadata: { workspace: name } });
    });
  }

  #of({ project }: Viewer): WorkspaceRow[] {
    return this.#core.tables.workspaces.all().filter((row) => isOf(row.project, project));
  }

  #row(name: string, viewer: Viewer): WorkspaceRow {
    const own = this.#of(viewer);
    const row = own.find((other) => other.name === name);
    if (row) return row;
    throw notFound(
      "workspace",
      name,
      own.map((other) => other.name),
    );
  }

  #liveEntry(row: WorkspaceRow): Entry | undefined {
    const entry = row.sandbox_id === null ? undefined : this.#parts.registry.byId(row.sandbox_id);
    return entry?.sandbox ? entry : undefined;
  }

  #info(row: WorkspaceRow): WorkspaceInfo {
    const entry = this.#liveEntry(row);
    return {
      id: row.id,
      project: row.project,
      name: row.name,
      source_snapshot_tag: shownName(row.source_snapshot_tag, row.project),
      current_state_tag: row.state_tag && shownName(row.state_tag, row.project),
      status: entry ? "running" : row.state_id === null ? "stale" : "suspended",
      live_sandbox_id: entry?.row.id ?? null,
      created_at_unix: row.created_at,
      last_active_unix: Math.max(row.last_active, Math.floor((entry?.lastActive ?? 0) / 1000)),
      last_branch_memory_path: entry?.row.last_branch_path ?? null,
      warnings: row.warnings,
    };
  }

  /** One change of a workspace at a time. Throws IN_USE */
  async alone<V>(name: string, { project }: Viewer, work: () => Promise<V>): Promise<V> {
    const stored = storedName(name, project);
    if (this.#changing.has(stored))
      throw new ForkdError("IN_USE", `Workspace ${name} is being changed by another request.`, { hint: "Try again when that is done." });
    this.#changing.add(stored);
    try {
      return await work();
    } finally {
      this.#changing.delete(stored);
    }
  }
}

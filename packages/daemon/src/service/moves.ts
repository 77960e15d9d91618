// Moves of sandboxes and workspaces to other nodes. A gateway carries the state: this node gives one up only when the other
// has all of it on its disk, and the other uses it only then. So exactly one node owns it at every moment, whatever dies.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import { EVERY_PROJECT } from "../store/project-names.ts";
import type { Move, MoveStore } from "../store/moves.ts";
import type { SandboxRow, WorkspaceRow } from "../store/tables.ts";
import { ownCaller, type Caller } from "./caller.ts";
import { nowUnix, type Core } from "./core.ts";
import type { Limits } from "./limits.ts";
import type { Lineage } from "./lineage.ts";
import { afterTransition, movedAway, type Entry, type Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import type { Snapshots } from "./snapshots.ts";
import type { Suspension } from "./suspension.ts";
import type { Workspaces } from "./workspaces.ts";

/** Of the record; a node with another one refuses it */
const FORMAT = 1;
/** If the gateway is silent for so long, the sandbox stays and runs */
const STAYS_AFTER_MS = 15 * 60 * 1000;
/** A gateway that is silent for so long has lost its claim */
const CLAIM_MS = 10_000;
/** Suspensions at a time, when no gateway has taken the sandboxes */
const ASLEEP_AT_ONCE = 2;
const LEAVE_CHECK_MS = 100;
const WORKSPACE_ID = /^ws-[a-z2-7]{16}$/;
/** Names of columns go into SQL */
const COLUMN = /^[a-z_]{1,32}$/;

/** All that another node needs, except the snapshot */
export type Departure = {
  format: number;
  id: string;
  project: string;
  name: string | null;
  /** code of the node that it leaves */
  from: string;
  /** how it was before the move */
  was: { state: SandboxRow["state"]; expires_at: number | null };
  snapshot: { id: string; tag: string };
  /** ids of the snapshots that it builds on, nearest first */
  chain: string[];
  sandbox: SandboxRow | null;
  workspace: WorkspaceRow | null;
};

type Facts = Omit<Departure, "format" | "id" | "project" | "name" | "from">;
type Owned = { project: string; name: string | null };

/** `problem`: why it is not as it was before: it stays suspended */
export type Arrival = { state: SandboxRow["state"]; problem: string | null };

type Away = { departure: Departure; entry: Entry | null; end: (how: "left" | "stays") => void; over: Promise<void>; timer: NodeJS.Timeout };
type Parts = {
  store: MoveStore;
  registry: Registry;
  sandboxes: Sandboxes;
  snapshots: Snapshots;
  suspension: Suspension;
  workspaces: Workspaces;
  limits: Limits;
  lineage: Lineage;
};

export class Moves {
  readonly #core: Core;
  readonly #parts: Parts;
  readonly #away = new Map<string, Away>();
  #claim: { by: string; untilMs: number } | null = null;

  constructor(core: Core, parts: Parts) {
    this.#core = core;
    this.#parts = parts;
  }

  /** Node of a sandbox that was here, for requests whose project is not known yet */
  nodeOf(id: string): string | undefined {
    return this.#parts.registry.byId(id) ? undefined : this.#parts.store.left(id, EVERY_PROJECT)?.node;
  }

  /** Suspends it, and keeps it so until `leave` or `stay`. A repetition has the same result */
  async depart(id: string, caller: Caller): Promise<Departure> {
    const known = this.#away.get(id);
    if (known) {
      known.timer.refresh();
      return known.departure;
    }
    if (WORKSPACE_ID.test(id)) return this.#departWorkspace(id);
    const entry = this.#parts.registry.get(id, caller);
    const { row } = entry;
    if (row.state === "ended" || row.state === "lost") throw new ForkdError("VMM_EXITED", `Cannot move sandbox ${id}: it has ended.`);
    if (row.shares.length > 0)
      throw new ForkdError("UNSUPPORTED", `Cannot move sandbox ${id}: it shares folders of its node.`, {
        hint: "End it, or leave it on its node.",
      });
    return this.#departSandbox(entry, caller);
  }

  /** Of several gateways one moves the sandboxes of a node that is leaving, until it is silent */
  claim(gateway: string): boolean {
    if (this.#claim && this.#claim.by !== gateway && this.#claim.untilMs > Date.now()) return false;
    this.#claim = { by: gateway, untilMs: Date.now() + CLAIM_MS };
    return true;
  }

  /** What was received and may not be this node's yet: only the node that had it knows */
  get arriving(): { id: string; from: string; at: number }[] {
    return this.#parts.store.all("arriving").map(({ id, node: from, at }) => ({ id, from, at }));
  }

  /** Resolves when no VM runs here any more: gateways have moved the sandboxes, or they are suspended until the next start */
  async leaveAll({ withinMs, signal }: { withinMs: number; signal: AbortSignal }): Promise<void> {
    const { registry } = this.#parts;
    const { log } = this.#core;
    const end = performance.now() + withinMs;
    const isOpen = (): boolean => registry.live.length > 0 || this.#away.size > 0;
    while (isOpen() && performance.now() < end && !signal.aborted) await sleep(LEAVE_CHECK_MS);
    const turns = new Semaphore(ASLEEP_AT_ONCE);
    const asleep = registry.live.map(async (entry) =>
      turns.run(async () => {
        const { id, project } = entry.row;
        try {
          // its move stays recorded: the next daemon ends it, and the sandbox runs on
          await this.#departSandbox(entry, ownCaller("daemon", project));
        } catch (error) {
          log.warn({ sandbox: id, err: error }, "a sandbox could not be suspended before the end of the daemon");
        }
      }),
    );
    await Promise.all(asleep);
  }

  async #departSandbox(entry: Entry, caller: Caller): Promise<Departure> {
    const { suspension, workspaces } = this.#parts;
    const { row } = entry;
    const { id } = row;
    const workspace = this.#core.tables.workspaces.all().find((other) => other.sandbox_id === id) ?? null;
    const own = ownCaller(caller.principal, row.project);
    return this.#leaving(id, entry, async (ready) => {
      const work = async (): Promise<void> =>
        suspension.away(id, own, async (_entry, before) => {
          // no other change of the row is possible from here on
          const was = { state: before.state, expires_at: before.expires_at };
          return ready({ ...(await this.#partsOf(entry.row.snapshot_id)), was, sandbox: entry.row, workspace }, entry.row);
        });
      await (workspace ? workspaces.alone(workspace.name, own, work) : work());
    });
  }

  /** The other node has it from now on. Throws SANDBOX_MOVED if yet another has */
  async leave(id: string, to: string, caller: Caller): Promise<void> {
    const { store, registry, lineage } = this.#parts;
    const away = this.#away.get(id);
    if (!away) {
      const left = store.left(id, EVERY_PROJECT);
      if (left?.node === to) return;
      throw left ? movedAway(id, left.node) : new ForkdError("BUSY", `Cannot give up ${id}: its move was ended, and it stays here.`);
    }
    const { departure, entry } = away;
    const { project, name, workspace } = departure;
    const move: Move = { id, project, name, node: to, record: {}, at: nowUnix() };
    const { tables, db, events } = this.#core;
    const alongside = (): void => {
      store.delete("departing", id);
      store.put("left", move);
      if (workspace) tables.workspaces.delete(workspace.id);
    };
    const event = { type: "sandbox.moved" as const, principal: caller.principal, reason: `to node ${to}` };
    if (entry) registry.leave(entry, to, event, alongside);
    else
      db.durably(() => {
        alongside();
        events.append({ ...event, type: "workspace.deleted", project, metadata: { workspace: name ?? "" } });
      });
    away.end("left");
    await away.over;
    await lineage.collectAfter(departure.snapshot.id);
  }

  /** Ends the move: it runs on here, if it ran before */
  async stay(id: string): Promise<void> {
    const away = this.#away.get(id);
    if (!away) return;
    away.end("stays");
    await away.over;
  }

  /** Whether it could be here: checked before its state is sent. Returns which snapshots of its chain are here */
  async reserve(departure: Departure): Promise<string[]> {
    const { store, registry, limits, sandboxes } = this.#parts;
    const { id, sandbox, workspace, project, name, from } = departure;
    if (departure.format !== FORMAT)
      throw new ForkdError("BAD_REQUEST", `Cannot take ${id}: node ${from} has another version of forkd, with another format.`);
    for (const row of [sandbox, workspace])
      if (row && !Object.keys(row).every((column) => COLUMN.test(column)))
        throw new ForkdError("BAD_REQUEST", `Cannot take ${id}: malformed.`);
    sandboxes.refuseCordoned();
    if (sandbox) {
      const there = registry.byId(id);
      if (there && !there.movedTo && registry.lasting.includes(there))
        throw new ForkdError("EXISTS", `Cannot take ${id}: it is here already.`);
      if (sandbox.name !== null && registry.isNameTaken(sandbox.name, { project }))
        throw new ForkdError("EXISTS", `Cannot take ${id}: another sandbox here has the name ${sandbox.name}.`);
      await sandboxes.possibleLimits({ ...sandbox, isolation: "any" }, sandbox);
      if (departure.was.state !== "suspended") await limits.checkRoom(sandbox);
    }
    if (workspace && this.#core.tables.workspaces.all().some((row) => row.project === project && row.name === workspace.name))
      throw new ForkdError("EXISTS", `Cannot take ${id}: there is a workspace with the name ${workspace.name} here.`);
    this.#core.db.transaction(() => store.put("arriving", { id, project, name, node: from, record: departure, at: nowUnix() }));
    const here = new Set(await this.#core.runtime.snapshots.ids());
    return departure.chain.filter((link) => here.has(link));
  }

  /** Resolves when its whole state is on the disk, and the other node may give it up */
  async arrive(id: string): Promise<void> {
    const { snapshot } = this.#arriving(id).record;
    await this.#parts.snapshots.onDisk(await this.#core.runtime.snapshots.byId(snapshot.id));
  }

  /** The other node has given it up: it is this node's, and as it was before. A repetition changes nothing */
  async settle(id: string, caller: Caller): Promise<Arrival> {
    const { store, registry, suspension } = this.#parts;
    const { tables, events, node, db } = this.#core;
    const received = store.get<Departure>("arriving", id);
    if (received) await this.#core.runtime.snapshots.byId(received.record.snapshot.id);
    // no waiting from here on until it is registered: two gateways may settle it at once
    const there = registry.byId(id);
    if (there && registry.lasting.includes(there)) {
      // another gateway has settled it, and it is just being resumed
      await afterTransition(there);
      return { state: there.row.state, problem: null };
    }
    const left = store.left(id, EVERY_PROJECT);
    const isArriving = store.get("arriving", id) !== undefined;
    if (left && !isArriving) throw movedAway(id, left.node);
    const { record, node: from } = this.#arriving(id);
    const { sandbox, workspace, snapshot, was, project } = record;
    const alongside = (): void => {
      if (workspace) tables.workspaces.insert(workspace);
      tables.snapshots.update(snapshot.id, { ephemeral: 1 });
      store.delete("arriving", id);
      store.delete("left", id);
    };
    const event = { type: "sandbox.moved" as const, principal: caller.principal, reason: `from node ${from}` };
    if (!sandbox) {
      db.durably(() => {
        alongside();
        events.append({ ...event, type: "workspace.created", project, metadata: { workspace: workspace?.name ?? "" } });
      });
      return { state: "suspended", problem: null };
    }
    const asleep = { state: "suspended", pid: 0, start_time: "", last_branch_path: null, last_active: nowUnix() } as const;
    const entry = registry.arrive({ ...sandbox, ...asleep }, event, alongside);
    this.#core.log.info({ sandbox: id, from, to: node }, "a sandbox has arrived");
    if (was.state === "suspended") {
      registry.change(entry, { expires_at: was.expires_at });
      return { state: "suspended", problem: null };
    }
    try {
      const own = ownCaller(caller.principal, project);
      await suspension.resume(id, own);
      await suspension.restore(entry, was, own);
    } catch (error) {
      this.#core.log.warn({ sandbox: id, err: error }, "a sandbox that has moved here could not be resumed; it stays suspended");
      return { state: entry.row.state, problem: messageOf(error) };
    }
    return { state: entry.row.state, problem: null };
  }

  /** Forgets what was received of it: it stays on its node */
  async drop(id: string): Promise<void> {
    const move = this.#parts.store.get<Departure>("arriving", id);
    if (!move) return;
    const { snapshot } = move.record;
    this.#core.db.transaction(() => {
      this.#parts.store.delete("arriving", id);
      if (this.#core.tables.snapshots.get(snapshot.id)) this.#core.tables.snapshots.update(snapshot.id, { ephemeral: 1 });
    });
    await this.#parts.lineage.collect();
  }

  /** After a start: what was leaving stays and runs on, in the background */
  async recover(): Promise<void> {
    const { store, suspension, registry } = this.#parts;
    const { log, db } = this.#core;
    for (const { id, record, project } of store.all<Departure["was"]>("departing")) {
      const entry = registry.byId(id);
      const own = ownCaller("daemon", project);
      try {
        if (entry?.row.state === "suspended" && record.state !== "suspended") {
          await suspension.resume(id, own);
          await suspension.restore(entry, record, own);
        }
        db.transaction(() => store.delete("departing", id));
      } catch (error) {
        log.warn({ sandbox: id, err: error }, "a sandbox whose move was interrupted could not be resumed; it stays suspended");
      }
    }
  }

  async #departWorkspace(id: string): Promise<Departure> {
    const row = this.#core.tables.workspaces.get(id);
    if (!row) throw notFound("workspace", id, []);
    const own = ownCaller("gateway", row.project);
    return this.#leaving(id, null, async (ready) =>
      this.#parts.workspaces.alone(row.name, own, async () => {
        const workspace = this.#core.tables.workspaces.get(id);
        if (!workspace?.state_id || workspace.sandbox_id !== null)
          throw new ForkdError("BUSY", `Cannot move workspace ${row.name}: it was changed meanwhile.`);
        const was = { state: "suspended", expires_at: null } as const;
        await ready({ ...(await this.#partsOf(workspace.state_id)), was, sandbox: null, workspace }, workspace);
      }),
    );
  }

  /** Runs the work, which calls `ready` with the record and waits there for the end of the move */
  async #leaving(
    id: string,
    entry: Entry | null,
    work: (ready: (facts: Facts, row: Owned) => Promise<"left" | "stays">) => Promise<void>,
  ): Promise<Departure> {
    const { store } = this.#parts;
    const { db, node, log } = this.#core;
    const recorded = Promise.withResolvers<Departure>();
    const verdict = Promise.withResolvers<"left" | "stays">();
    const ready = async (facts: Facts, { project, name }: Owned): Promise<"left" | "stays"> => {
      const departure = { format: FORMAT, id, project, name, from: node, ...facts };
      db.transaction(() => store.put("departing", { id, project, name, node, record: facts.was, at: nowUnix() }));
      const timer = setTimeout(() => verdict.resolve("stays"), STAYS_AFTER_MS).unref();
      this.#away.set(id, { departure, entry, end: verdict.resolve, over, timer });
      recorded.resolve(departure);
      const how = await verdict.promise;
      clearTimeout(timer);
      return how;
    };
    // begins after this turn, when `over` is set
    const over: Promise<void> = sleep(0)
      .then(async () => work(ready))
      .then(() => db.transaction(() => store.delete("departing", id)))
      .finally(() => this.#away.delete(id));
    over.catch((error: unknown) => {
      recorded.reject(error);
      log.warn({ sandbox: id, err: error }, "a move failed");
    });
    return recorded.promise;
  }

  async #partsOf(snapshotId: string): Promise<Pick<Departure, "snapshot" | "chain">> {
    const { snapshots } = this.#core.runtime;
    const chain: string[] = [];
    const { manifest } = await snapshots.byId(snapshotId);
    for (let { memory } = manifest; memory.kind === "delta";) {
      chain.push(memory.base);
      ({ memory } = (await snapshots.byId(memory.base)).manifest);
    }
    return { snapshot: { id: snapshotId, tag: manifest.tag }, chain };
  }

  #arriving(id: string): Move<Departure> {
    const move = this.#parts.store.get<Departure>("arriving", id);
    if (!move) throw notFound("sandbox", id, []);
    return move;
  }
}

// The simulation of one policy: requests come, nodes start children, report, die and are drained.

import { afterSending } from "@forkd/gateway/placement/fullness";
import { Agenda } from "./agenda.ts";
import { Figures, type PolicyFigures } from "./figures.ts";
import { SimNode, type Sandbox } from "./node.ts";
import { exponential, pick, seeded } from "./random.ts";
import { makeSnapshot, makeSnapshots, meanChildren, MODEL, workload, type Scenario, type Work } from "./scenario.ts";
import { Transfers } from "./transfers.ts";

import type { ForkRequest, NodeFacts, Random, SnapshotFacts } from "@forkd/gateway/placement/facts";
import type { Policy } from "./policies.ts";

/** A gateway treats a node as cordoned after so many reports that did not come */
const REPORTS_MISSED = 3;
/** A move that found no node is tried again after this time, as is the move of a sandbox that was still starting */
const MOVE_AGAIN_MS = 1000;

type Target = Pick<Sandbox, "snapshot" | "gateway" | "isMove"> & {
  /** sandbox whose memory is forked or moved, with the node it is on; null: a stored snapshot */
  live: { node: SimNode; deltaMiB: number } | null;
};

export function simulate(policy: Policy, scenario: Scenario, seed: number): PolicyFigures {
  return new Simulation(policy, scenario, seed).run();
}

class Simulation {
  readonly #policy: Policy;
  readonly #scenario: Scenario;
  readonly #agenda = new Agenda();
  readonly #figures: Figures;
  readonly #nodes: SimNode[];
  readonly #snapshots: SnapshotFacts[];
  readonly #burst: SnapshotFacts;
  readonly #transfers: Transfers;
  readonly #draw: (burst: SnapshotFacts | null) => Work;
  /** each has its own generator, so that the choices of a policy do not change the work or the failures */
  readonly #random: { arrivals: Random; choices: Random; faults: Random };
  readonly #byCode: Map<string, SimNode>;
  /** what each gateway sees; with "now" all see the nodes themselves */
  readonly #views: NodeFacts[][];
  readonly #running: Sandbox[] = [];
  readonly #places = new Map<Sandbox, number>();

  constructor(policy: Policy, scenario: Scenario, seed: number) {
    const [made, arrivals, choices, faults, senders] = [1, 2, 3, 4, 5].map((part) => seeded(seed * 31 + part)) as [
      Random,
      Random,
      Random,
      Random,
      Random,
    ];
    this.#policy = policy;
    this.#scenario = scenario;
    this.#random = { arrivals, choices, faults };
    this.#nodes = Array.from({ length: scenario.nodes }, (_, index) => new SimNode(index, this.#agenda));
    this.#byCode = new Map(this.#nodes.map((node) => [node.facts.code, node]));
    this.#transfers = new Transfers(this.#agenda, senders);
    this.#snapshots = makeSnapshots(scenario, made);
    this.#burst = { ...makeSnapshot("burst", made, "8.2"), memoryMiB: 512, diskMiB: 600, inRegistry: false };
    for (const snapshot of this.#snapshots) for (const node of this.#firstHolders(made)) this.#transfers.put(node, snapshot);
    const [burstHolder] = this.#firstHolders(made);
    if (burstHolder) this.#transfers.put(burstHolder, this.#burst);
    this.#draw = workload(scenario, this.#snapshots, arrivals);
    const reports = this.#nodes.map((node) => node.report());
    const now = this.#nodes.map(({ facts }) => facts);
    this.#views = Array.from({ length: scenario.gateways }, () => (policy.sees === "now" ? now : [...reports]));
    this.#figures = new Figures(scenario, this.#nodes, this.#transfers);
  }

  run(): PolicyFigures {
    const { warmUpSecs, secs, reportEveryMs, failEverySecs, drainEverySecs } = this.#scenario;
    const endMs = (warmUpSecs + secs) * 1000;
    this.#arrive();
    for (const node of this.#nodes) this.#agenda.at(this.#random.faults() * reportEveryMs, () => this.#report(node));
    for (let atMs = (warmUpSecs + failEverySecs / 2) * 1000; atMs < endMs; atMs += failEverySecs * 1000)
      this.#agenda.at(atMs, () => this.#fail());
    for (let atMs = (warmUpSecs + drainEverySecs / 3) * 1000; atMs < endMs; atMs += drainEverySecs * 1000)
      this.#agenda.at(atMs, () => this.#drain());
    for (let atMs = 1000; atMs <= endMs; atMs += 1000) this.#agenda.at(atMs, () => this.#figures.sample(this.#agenda.nowMs));
    this.#agenda.runUntil(endMs);
    // their wait has not ended: it counts as what it is by now
    for (const { sandboxes } of this.#nodes)
      for (const sandbox of sandboxes) if (sandbox.state === "starting") this.#figures.started(sandbox, endMs);
    return this.#figures.result(this.#policy.name, this.#running.length);
  }

  /** Holders of a snapshot at the beginning: only nodes that can load all snapshots */
  #firstHolders(random: Random): Set<SimNode> {
    const chosen = new Set<SimNode>();
    while (chosen.size < this.#scenario.replicas) {
      const node = pick(random, this.#nodes);
      if (node?.facts.engine.version === "10.0") chosen.add(node);
    }
    return chosen;
  }

  #arrive(): void {
    const gapMs = (60_000 * meanChildren()) / this.#scenario.forksPerMinute;
    this.#agenda.in(exponential(this.#random.arrivals, gapMs), () => {
      const work = this.#draw(this.#isBurst() ? this.#burst : null);
      const source = work.live === null ? undefined : this.#running[Math.floor(work.live * this.#running.length)];
      this.#fork(
        {
          snapshot: source?.snapshot ?? work.snapshot,
          gateway: work.gateway,
          isMove: false,
          live: source ? { node: source.node, deltaMiB: work.deltaMiB } : null,
        },
        work.children,
      );
      this.#arrive();
    });
  }

  #isBurst(): boolean {
    const { warmUpSecs, secs, burstSecs } = this.#scenario;
    return Math.abs(this.#agenda.nowMs / 1000 - warmUpSecs - secs / 2) < burstSecs / 2;
  }

  /** Asks the candidates in turn, as a gateway does; returns the children that no node took */
  #fork(target: Target, children: Work["children"], again?: Pick<Sandbox, "askedMs" | "lostMs">): number {
    const view = this.#views[target.gateway] ?? [];
    const request = requestOf(target, children.length);
    const choice = this.#policy.choose(request, view, this.#random.choices, { holders: this.#holders(target, view) });
    let open = [...children];
    let lostMs = again?.lostMs ?? 0;
    if ("candidates" in choice) {
      for (const { node: code, room } of choice.candidates) {
        const node = this.#byCode.get(code);
        if (!node || open.length === 0) break;
        const taken = open.slice(0, room);
        lostMs += node.isAlive ? MODEL.attemptMs : MODEL.timeoutMs;
        if (!node.accepts(target.snapshot, taken.length)) {
          this.#figures.refusal(this.#agenda.nowMs);
          if (!node.isAlive) this.#see(target.gateway, node, (facts) => ({ ...facts, cordoned: true }));
          continue;
        }
        open = open.slice(taken.length);
        this.#see(target.gateway, node, (facts) => afterSending(facts, request, taken.length));
        this.#begin(node, target, taken, { askedMs: again?.askedMs ?? this.#agenda.nowMs, lostMs });
      }
      if (choice.spreadTo !== null) this.#spread(target, choice.spreadTo);
    }
    if (open.length > 0 && !target.isMove) this.#figures.failed(this.#agenda.nowMs, open.length);
    return open.length;
  }

  #holders({ snapshot, live }: Target, view: readonly NodeFacts[]): NodeFacts[] {
    const nodes = new Set(this.#transfers.ever(snapshot.id));
    if (live) nodes.add(live.node);
    return [...nodes].flatMap(({ index }) => view[index] ?? []);
  }

  #begin(node: SimNode, target: Target, children: Work["children"], asked: Pick<Sandbox, "askedMs" | "lostMs">): void {
    const { snapshot, gateway, isMove, live } = target;
    const isLocal = live ? live.node === node : node.has(snapshot.id);
    if (!isMove) this.#figures.placed(this.#agenda.nowMs, children.length, isLocal);
    const sandboxes = children.map((child): Sandbox => ({
      ...child,
      ...asked,
      snapshot,
      gateway,
      isMove,
      node,
      state: "starting",
      endsMs: 0,
    }));
    for (const sandbox of sandboxes) node.take(sandbox);
    const start = (): void => {
      for (const sandbox of sandboxes) node.start(sandbox, () => this.#started(sandbox));
    };
    this.#transfers.fetch(node, snapshot, () => {
      if (!live || live.node === node) start();
      else this.#transfers.send(live.node, node, live.deltaMiB, start);
    });
  }

  #started(sandbox: Sandbox): void {
    const { node, lifeMs } = sandbox;
    sandbox.state = "running";
    this.#places.set(sandbox, this.#running.push(sandbox) - 1);
    this.#figures.started(sandbox, this.#agenda.nowMs);
    const { life } = node;
    sandbox.endsMs = this.#agenda.nowMs + lifeMs;
    this.#agenda.in(lifeMs, () => {
      if (sandbox.state !== "running" || life !== node.life) return;
      this.#end(sandbox);
    });
  }

  #end(sandbox: Sandbox): void {
    sandbox.node.release(sandbox);
    sandbox.state = "ended";
    const at = this.#places.get(sandbox);
    const last = this.#running.at(-1);
    if (at === undefined || !last) return;
    this.#running[at] = last;
    this.#places.set(last, at);
    this.#running.pop();
    this.#places.delete(sandbox);
  }

  #spread({ gateway, snapshot }: Target, code: string): void {
    const node = this.#byCode.get(code);
    if (!node?.isAlive || node.facts.cordoned) return;
    this.#transfers.fetch(node, snapshot);
    this.#see(gateway, node, (facts) => ({ ...facts, fetching: new Set([...facts.fetching, snapshot.id]) }));
  }

  /** What a gateway learns between two reports; a gateway that sees the nodes themselves learns nothing new */
  #see(gateway: number, { index }: SimNode, change: (facts: NodeFacts) => NodeFacts): void {
    if (this.#policy.sees === "now") return;
    const view = this.#views[gateway];
    const facts = view?.[index];
    if (view && facts) view[index] = change(facts);
  }

  #report(node: SimNode): void {
    const { reportEveryMs, reportDelayMs } = this.#scenario;
    this.#agenda.in(reportEveryMs, () => this.#report(node));
    if (!node.isAlive || this.#policy.sees === "now") return;
    const facts = node.report();
    this.#agenda.in(reportDelayMs, () => {
      for (const gateway of this.#views.keys()) this.#see(gateway, node, () => facts);
    });
  }

  /** A node dies without notice: what ran is lost, what was starting is asked for again by its gateway */
  #fail(): void {
    const node = pick(this.#random.faults, this.#nodes);
    if (!node?.isAlive || node.facts.cordoned) return;
    const { nowMs } = this.#agenda;
    const { reportEveryMs, downSecs } = this.#scenario;
    for (const sandbox of node.die()) {
      if (sandbox.state === "running") {
        this.#figures.lost(1);
        this.#end(sandbox);
      } else {
        const { snapshot, gateway, isMove, askedMs, lostMs, lifeMs, cores } = sandbox;
        sandbox.state = "ended";
        this.#agenda.at(nowMs, () => {
          const live = isMove ? { node, deltaMiB: MODEL.deltaMiB.median } : null;
          this.#fork({ snapshot, gateway, isMove, live }, [{ lifeMs, cores }], { askedMs, lostMs });
        });
      }
    }
    this.#agenda.in(REPORTS_MISSED * reportEveryMs, () => {
      if (!node.isAlive) for (const gateway of this.#views.keys()) this.#see(gateway, node, (facts) => ({ ...facts, cordoned: true }));
    });
    this.#agenda.in(downSecs * 1000, () => {
      node.isAlive = true;
      node.facts.cordoned = false;
    });
  }

  #drain(): void {
    const node = pick(this.#random.faults, this.#nodes);
    if (!node?.isAlive || node.facts.cordoned) return;
    node.facts.cordoned = true;
    const { life } = node;
    const untilMs = this.#agenda.nowMs + this.#scenario.downSecs * 1000;
    const move = (): void => {
      if (node.life !== life) return;
      for (const sandbox of node.sandboxes) if (sandbox.state === "running") this.#move(sandbox);
      if (this.#agenda.nowMs + MOVE_AGAIN_MS < untilMs) this.#agenda.in(MOVE_AGAIN_MS, move);
      else node.facts.cordoned = false;
    };
    move();
  }

  /** Suspends, sends what changed, resumes elsewhere. Without a node that takes it the sandbox stays where it is */
  #move(sandbox: Sandbox): void {
    const { snapshot, gateway, node, cores, endsMs } = sandbox;
    const live = { node, deltaMiB: MODEL.deltaMiB.median };
    const child = { cores, lifeMs: Math.max(0, endsMs - this.#agenda.nowMs) };
    if (this.#fork({ snapshot, gateway, isMove: true, live }, [child]) > 0) return;
    this.#end(sandbox);
  }
}

function requestOf({ snapshot, live, isMove }: Target, count: number): ForkRequest {
  return {
    // its pages are on its own node; others that hold the snapshot below need only these
    snapshot: live ? { ...snapshot, id: "live", base: snapshot.id, deltaMiB: live.deltaMiB, inRegistry: true } : snapshot,
    count,
    isolation: "kvm",
    allowedNodes: null,
    sourceNode: live && !isMove ? live.node.facts.code : null,
  };
}

// Prometheus metrics; the only importer of prom-client.

import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { History } from "./history.ts";
import type { ErrorCode } from "@forkd/runtime/errors";
import type { QuotaUse } from "../api/project.ts";
import { EVERY_PROJECT, isOf } from "../store/project-names.ts";

/** Gauges that are measured per scrape */
export type Levels = {
  sandboxes: number;
  /** memory of their machines together */
  guestBytes: number;
  snapshots: number;
  branchesInFlight: number;
  poolWaiting: number;
  poolSize: number;
  /** private memory of each VMM, by sandbox id */
  privateBytes: Map<string, number>;
  /** sandbox id → its project */
  projectOf: Map<string, string>;
  quotas: QuotaUse[];
};

/** Projects with series of their own; the others are one series */
const MAX_PROJECTS = 100;
const OTHERS = "others";

type Result = "result";
const FAST = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
const SLOW = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

export class Metrics {
  // own registry: two daemons in one process, as in tests, must not share metrics
  readonly #registry = new Registry();
  readonly history: History = new History(FAST.map((secs) => secs * 1000));
  #source: (() => Promise<Levels>) | null = null;

  readonly #forks = this.#counter<Result>("forkd_forks_total", "Sandboxes forked", ["result"]);
  readonly #branches = this.#counter<Result>("forkd_branches_total", "Branches taken", ["result"]);
  readonly #evals = this.#counter<Result>("forkd_evals_total", "Evaluations in warm interpreters", ["result"]);
  readonly #execs = this.#counter<Result>("forkd_execs_total", "Programs run", ["result"]);
  readonly #connections = this.#counter<Result>("forkd_network_connections_total", "Connections out of sandboxes", ["result"]);
  readonly #networkBytes = this.#counter<"direction">("forkd_network_bytes_total", "Bytes of connections that have ended", ["direction"]);
  readonly #errors = this.#counter<"code">("forkd_errors_total", "Errors answered, by code", ["code"]);
  readonly #deltaBytes = this.#counter<never>("forkd_delta_bytes_total", "Bytes of guest memory stored by branches", []);
  readonly #requests = this.#counter<"route" | "method" | "status">("forkd_http_requests_total", "Requests answered", [
    "route",
    "method",
    "status",
  ]);

  readonly #forkReady = this.#histogram<never>("forkd_fork_ready_seconds", "From the request to a sandbox that answers", FAST, []);
  readonly #pause = this.#histogram<never>("forkd_branch_pause_seconds", "Pause of the source of a branch", FAST, []);
  readonly #evalTime = this.#histogram<never>("forkd_eval_seconds", "Duration of evaluations", SLOW, []);
  readonly #execTime = this.#histogram<never>("forkd_exec_seconds", "Duration of programs", SLOW, []);
  readonly #requestTime = this.#histogram<"route">("forkd_http_request_seconds", "Duration of requests", SLOW, ["route"]);

  readonly #snapshots = this.#gauge("forkd_snapshots_total", "Snapshots that exist");
  readonly #sandboxes = this.#gauge("forkd_sandboxes_active", "Sandboxes that are alive");
  readonly #branchesInFlight = this.#gauge("forkd_branches_in_flight", "Branches being taken now");
  readonly #poolWaiting = this.#gauge("forkd_pool_waiting", "VMMs that wait for a fork");
  readonly #poolSize = this.#gauge("forkd_pool_size", "VMMs that should wait for a fork");
  readonly #privateBytes = new Gauge({
    name: "forkd_sandbox_private_bytes",
    help: "Guest memory that is a sandbox's own",
    labelNames: ["sandbox"],
    registers: [this.#registry],
  });
  readonly #projectUse = this.#labelled("forkd_project_used", "What a project uses of its quota, by the quota's name", [
    "project",
    "quota",
  ]);
  readonly #projectLimit = this.#labelled("forkd_project_limit", "Quota of a project; absent without one", ["project", "quota"]);
  readonly #refusals = this.#counter<"quota">("forkd_quota_refusals_total", "Requests refused by a quota", ["quota"]);
  readonly #rss = this.#gauge("process_resident_memory_bytes", "Resident memory of the daemon");
  readonly #startTime = this.#gauge("process_start_time_seconds", "When the daemon started, in Unix time");
  readonly #cpu = this.#counter<never>("process_cpu_seconds_total", "CPU time of the daemon", []);
  #cpuSeen = 0;

  constructor(opts: { version: string; branchConcurrency: number }) {
    this.#gauge("forkd_branch_concurrency_cap", "Branches allowed at once").set(opts.branchConcurrency);
    const info = new Gauge({ name: "forkd_build_info", help: "Version", labelNames: ["version"], registers: [this.#registry] });
    info.set({ version: opts.version }, 1);
    this.#startTime.set(Math.round(Date.now() / 1000 - process.uptime()));
  }

  /** Sets the source of the gauges, called once per scrape */
  collectFrom(source: () => Promise<Levels>): void {
    this.#source = source;
  }

  // fields, not methods: the manager passes them on without `this`
  readonly forked = (ms: number, ok: boolean): void => {
    this.#forks.inc({ result: result(ok) });
    if (!ok) return;
    this.#forkReady.observe(ms / 1000);
    this.history.forked(ms);
  };

  readonly branched = (pauseMs: number, deltaBytes: number, ok: boolean): void => {
    this.#branches.inc({ result: result(ok) });
    if (!ok) return;
    this.#pause.observe(pauseMs / 1000);
    this.history.branched(pauseMs);
    this.#deltaBytes.inc(deltaBytes);
  };

  /** `ok`: the code ran to its end, even if it raised an error */
  readonly evaluated = (ms: number, ok: boolean): void => {
    this.#evals.inc({ result: result(ok) });
    this.#evalTime.observe(ms / 1000);
  };

  readonly executed = (ms: number, ok: boolean): void => {
    this.#execs.inc({ result: result(ok) });
    this.#execTime.observe(ms / 1000);
  };

  readonly connected = (event: "opened" | "refused" | "ended", bytes: { up: number; down: number }): void => {
    if (event === "opened") this.#connections.inc({ result: "allowed" });
    if (event === "refused") this.#connections.inc({ result: "refused" });
    this.#networkBytes.inc({ direction: "up" }, bytes.up);
    this.#networkBytes.inc({ direction: "down" }, bytes.down);
  };

  failed(code: ErrorCode, details?: Record<string, unknown>): void {
    this.#errors.inc({ code });
    if (code === "QUOTA_EXCEEDED") this.#refusals.inc({ quota: String(details?.["quota"]) });
  }

  /** `route` is the pattern, not the path: the number of label values must be bounded */
  answered(request: { route: string; method: string; status: number; ms: number }): void {
    this.#requests.inc({ route: request.route, method: request.method, status: request.status });
    this.#requestTime.observe({ route: request.route }, request.ms / 1000);
  }

  /** Adds the present levels to the history */
  async sample(): Promise<void> {
    const levels = await this.#source?.();
    if (!levels) return;
    const own = levels.privateBytes.values().reduce((sum, bytes) => sum + bytes, 0);
    this.history.sample({ sandboxes: levels.sandboxes, guest_bytes: levels.guestBytes, private_bytes: own }, Date.now());
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** For a project: without the sandboxes and the use of others */
  async text(project: string = EVERY_PROJECT): Promise<string> {
    const levels = await this.#source?.();
    if (levels) this.#show(levels, project);
    this.#rss.set(process.memoryUsage.rss());
    const { user, system } = process.cpuUsage();
    const seconds = (user + system) / 1e6;
    this.#cpu.inc(Math.max(0, seconds - this.#cpuSeen));
    this.#cpuSeen = seconds;
    return this.#registry.metrics();
  }

  #show(levels: Levels, project: string): void {
    this.#sandboxes.set(levels.sandboxes);
    this.#snapshots.set(levels.snapshots);
    this.#branchesInFlight.set(levels.branchesInFlight);
    this.#poolWaiting.set(levels.poolWaiting);
    this.#poolSize.set(levels.poolSize);
    // reset: otherwise ended sandboxes would stay as labels
    this.#privateBytes.reset();
    for (const [sandbox, bytes] of levels.privateBytes)
      if (isOf(levels.projectOf.get(sandbox) ?? "", project)) this.#privateBytes.set({ sandbox }, bytes);
    this.#projectUse.reset();
    this.#projectLimit.reset();
    for (const [at, use] of levels.quotas.filter((each) => isOf(each.project, project)).entries())
      this.#showProject(use, at < MAX_PROJECTS ? use.project : OTHERS);
  }

  #showProject({ limits, used }: QuotaUse, project: string): void {
    for (const quota of Object.keys(used) as (keyof QuotaUse["used"])[]) {
      this.#projectUse.inc({ project, quota }, used[quota]);
      const limit = limits[quota];
      if (limit !== null) this.#projectLimit.inc({ project, quota }, limit);
    }
  }

  #counter<L extends string>(name: string, help: string, labelNames: L[]): Counter<L> {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }

  #labelled<L extends string>(name: string, help: string, labelNames: L[]): Gauge<L> {
    return new Gauge({ name, help, labelNames, registers: [this.#registry] });
  }

  #gauge(name: string, help: string): Gauge {
    return new Gauge({ name, help, registers: [this.#registry] });
  }

  #histogram<L extends string>(name: string, help: string, buckets: number[], labelNames: L[]): Histogram<L> {
    return new Histogram({ name, help, buckets, labelNames, registers: [this.#registry] });
  }
}

function result(ok: boolean): "ok" | "error" {
  return ok ? "ok" : "error";
}

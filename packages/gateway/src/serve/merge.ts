// Answers of all nodes as one.

import { respond } from "@forkd/daemon/dispatch/respond";
import { askerOf, type Asked } from "./cluster.ts";
import type { Answer } from "@forkd/daemon/dispatch/answer";
import type { GcResult, History, Status } from "@forkd/daemon/api/daemon";
import type { SandboxInfo } from "@forkd/daemon/api/sandbox";
import type { TreeNode, Tree } from "@forkd/daemon/api/snapshot";
import type { Node, Reply } from "../nodes/node.ts";

/** Nodes that did not answer in time, whose part is missing */
const MISSING = "x-forkd-unreachable";

type Given<V> = { node: Node; body: V };

/** Asks all nodes the client's question and answers with their answers, joined; a refusal of any is the answer */
export async function merged<V>(asked: Asked, join: (given: Given<V>[]) => unknown, opts: { body?: Buffer } = {}): Promise<void> {
  const answer = await askAndJoin(asked, asked.exchange.request.url ?? "/", join, opts);
  await respond(asked.exchange, answer);
}

export async function askAndJoin<V>(
  { exchange, cluster }: Asked,
  path: string,
  join: (given: Given<V>[]) => unknown,
  opts: { body?: Buffer } = {},
): Promise<Answer> {
  const method = exchange.method === "HEAD" ? "GET" : exchange.method;
  const { answers, missing } = await cluster.nodes.askAll(method, path, askerOf(exchange), {
    signal: exchange.signal,
    headers: { "x-request-id": exchange.id },
    ...opts,
  });
  const headers: Record<string, string> = missing.length === 0 ? {} : { [MISSING]: missing.map(({ label }) => label).join(",") };
  const refused = answers.find(({ value }) => value.status >= 400);
  if (refused) return { status: refused.value.status, headers, body: refused.value.body };
  const first = answers[0]?.value.status ?? 200;
  return { status: first, headers, body: join(answers.map(({ node, value }) => ({ node, body: value.body as V }))) };
}

/**
 * One page of a list that all nodes sort by the same key. A node's cursor is the key of the last entry, which is a
 * position in the list of every other node too, so one cursor is enough
 */
export async function mergedPage<T>(
  asked: Asked,
  opts: { limit: string | null; header: string; keyOf: (item: T) => string; idOf: (item: T) => string; isDescending?: boolean },
): Promise<void> {
  const { keyOf, idOf, header } = opts;
  const limit = opts.limit === null ? undefined : Number(opts.limit);
  const hasMore = new Set<Reply>();
  const { exchange, cluster } = asked;
  const { answers, missing } = await cluster.nodes.askAll("GET", exchange.request.url ?? "/", askerOf(exchange), {
    signal: exchange.signal,
    headers: { "x-request-id": exchange.id },
  });
  const headers: Record<string, string> = missing.length === 0 ? {} : { [MISSING]: missing.map(({ label }) => label).join(",") };
  const refused = answers.find(({ value }) => value.status >= 400);
  if (refused) {
    await respond(exchange, { status: refused.value.status, headers, body: refused.value.body });
    return;
  }
  for (const { value } of answers) if (value.headers[header] !== undefined) hasMore.add(value);
  const sign = opts.isDescending ? -1 : 1;
  const all = distinct(
    answers.flatMap(({ value }) => value.body as T[]),
    idOf,
  );
  const sorted = all.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -sign : sign));
  const items = limit === undefined || limit === 0 ? sorted : sorted.slice(0, limit);
  const last = items.at(-1);
  if (last !== undefined && (items.length < sorted.length || hasMore.size > 0))
    headers[header] = Buffer.from(keyOf(last)).toString("base64url");
  await respond(exchange, { status: 200, headers, body: items });
}

export function concatenated(given: Given<unknown[]>[]): unknown[] {
  return given.flatMap(({ body }) => body);
}

/** Copies of a snapshot or image have the same id on all nodes */
export function distinct<T>(items: readonly T[], idOf: (item: T) => string): T[] {
  return [...new Map(items.map((item) => [idOf(item), item])).values()];
}

export function sandboxKey({ created_at_unix_ms: at, id }: SandboxInfo): string {
  return `${String(at).padStart(15, "0")} ${id}`;
}

export function joinGarbage(given: Given<GcResult>[]): GcResult {
  return {
    removed: given.flatMap(({ body }) => body.removed),
    bytes: sum(given.map(({ body }) => body.bytes)),
    dry_run: given.every(({ body }) => body.dry_run),
  };
}

/** Copies of a snapshot become one node of the tree, with the sandboxes and branches of all */
export function joinTrees(given: Given<Tree>[]): Tree {
  return { roots: joinNodes(given.flatMap(({ body }) => body.roots)) };
}

function joinNodes(nodes: readonly TreeNode[]): TreeNode[] {
  return [...Map.groupBy(nodes, ({ id }) => id).values()].flatMap((copies) => {
    const [first] = copies;
    if (!first) return [];
    const tag = copies.find((copy) => copy.tag !== null)?.tag ?? null;
    return [
      {
        ...first,
        nodes: [...new Set(copies.flatMap(({ nodes: holders }) => holders))],
        tag,
        sandboxes: copies.flatMap(({ sandboxes }) => sandboxes),
        snapshots: joinNodes(copies.flatMap((copy) => copy.snapshots)),
      },
    ];
  });
}

export function joinHistories(given: Given<History>[]): History {
  const [first] = given;
  if (!first) return { step_secs: 0, samples: [], bounds_ms: [], fork_counts: [], pause_counts: [] };
  const { step_secs: step, bounds_ms } = first.body;
  const samples = given.flatMap(({ body }) =>
    body.samples.map((sample) => ({ ...sample, time_unix: sample.time_unix - (sample.time_unix % step) })),
  );
  const joined = [...Map.groupBy(samples, ({ time_unix: at }) => at)].map(([time_unix, at]) => ({
    time_unix,
    forks: sum(at.map(({ forks }) => forks)),
    branches: sum(at.map(({ branches }) => branches)),
    sandboxes: sum(at.map(({ sandboxes }) => sandboxes)),
    guest_bytes: sum(at.map(({ guest_bytes: bytes }) => bytes)),
    private_bytes: sum(at.map(({ private_bytes: bytes }) => bytes)),
  }));
  const counts = (of: "fork_counts" | "pause_counts"): number[] =>
    first.body[of].map((_, at) => sum(given.map(({ body }) => body[of][at] ?? 0)));
  return {
    step_secs: step,
    samples: joined.toSorted((a, b) => a.time_unix - b.time_unix),
    bounds_ms,
    fork_counts: counts("fork_counts"),
    pause_counts: counts("pause_counts"),
  };
}

/** Sums, and what is the same everywhere; `kvm` only where all nodes have it */
export function joinStatuses({ cluster: { self } }: Asked, given: Given<Status>[]): Status {
  const bodies = given.map(({ body }) => body);
  const total = (of: (status: Status) => number): number => sum(bodies.map(of));
  const all = <V>(of: (status: Status) => V): V[] => [...new Set(bodies.map(of))];
  const isKvm = bodies.every(({ accelerator }) => accelerator === "kvm");
  const optional = (of: (status: Status) => number | null): number | null => {
    const values = bodies.map(of);
    return values.some((value) => value === null) ? null : sum(values.map((value) => value ?? 0));
  };
  return {
    version: self.version,
    node: bodies.map(({ node }) => node).join(","),
    pid: process.pid,
    uptime_secs: Math.round(Date.now() - self.startedAtMs) / 1000,
    home: `cluster of ${given.length} nodes`,
    socket: "",
    bind: self.bind,
    tls: self.tls,
    proxy_url: self.proxyUrl,
    accelerator: isKvm ? "kvm" : "tcg",
    accelerator_reason: all((status) => status.accelerator_reason).join("; "),
    isolation: isKvm ? "kvm" : "emulated",
    isolation_policy: bodies[0]?.isolation_policy ?? "auto",
    confinement: bodies.every(({ confinement }) => confinement === "namespaces") ? "namespaces" : "none",
    confinement_policy: bodies[0]?.confinement_policy ?? "preferred",
    confinement_reason: all((status) => status.confinement_reason).find((reason) => reason !== null) ?? null,
    engine: all(({ engine }) => engine).join(", "),
    sandboxes: total(({ sandboxes }) => sandboxes),
    snapshots: total(({ snapshots }) => snapshots),
    images: total(({ images }) => images),
    cordoned: bodies.every(({ cordoned }) => cordoned),
    leaving: bodies.every(({ leaving }) => leaving),
    pool_waiting: total((status) => status.pool_waiting),
    branches_in_flight: total((status) => status.branches_in_flight),
    limits: {
      max_sandboxes: total(({ limits }) => limits.max_sandboxes),
      max_memory_mib: optional(({ limits }) => limits.max_memory_mib),
      max_disk_mib: optional(({ limits }) => limits.max_disk_mib),
      min_free_mib: total(({ limits }) => limits.min_free_mib),
      branch_concurrency: total(({ limits }) => limits.branch_concurrency),
    },
    sandbox_limits: {
      applicable: (bodies[0]?.sandbox_limits.applicable ?? []).filter((name) =>
        bodies.every((status) => status.sandbox_limits.applicable.includes(name)),
      ),
      reason: bodies.find((status) => status.sandbox_limits.reason !== null)?.sandbox_limits.reason ?? null,
    },
    memory: {
      committed_mib: total(({ memory }) => memory.committed_mib),
      available_mib: total(({ memory }) => memory.available_mib),
    },
    disk: { free_mib: total(({ disk }) => disk.free_mib) },
    load: total(({ load }) => load) / Math.max(1, bodies.length),
  };
}

/** Prometheus text of several processes: each sample gets the node as a label, each description stands once */
export function joinMetrics(texts: readonly { node: string; text: string }[]): string {
  const families = new Map<string, { about: string[]; samples: string[] }>();
  for (const { node, text } of texts) {
    let current = "";
    for (const line of text.split("\n")) {
      if (line === "") continue;
      const [, name] = /^# (?:HELP|TYPE) (\S+)/.exec(line) ?? [];
      if (name !== undefined) current = name;
      const family = families.get(current) ?? { about: [], samples: [] };
      families.set(current, family);
      if (name === undefined) family.samples.push(labelled(line, node));
      else if (!family.about.includes(line)) family.about.push(line);
    }
  }
  return [...families.values()].map(({ about, samples }) => [...about, ...samples, ""].join("\n")).join("\n");
}

function labelled(line: string, node: string): string {
  const at = line.search(/[{ ]/);
  const [name, rest] = [line.slice(0, at), line.slice(at)];
  return rest.startsWith("{") ? `${name}{node="${node}",${rest.slice(1)}` : `${name}{node="${node}"}${rest}`;
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

// NOT_FOUND errors: they name the route that lists such things, and suggest the nearest name.

import { ForkdError } from "../errors.ts";

const LISTS = {
  snapshot: "GET /v1/snapshots",
  sandbox: "GET /v1/sandboxes",
  image: "GET /v1/images",
  workspace: "GET /v1/workspaces",
  token: "GET /v1/tokens",
  project: "GET /v1/projects",
  key: "GET /v1/keys",
  recipe: "GET /v1/recipes",
  process: "GET /v1/sandboxes/ID/processes",
  node: "GET /v1/cluster",
  context: "GET /v1/sandboxes/ID/contexts",
} as const;

const PLAIN = /^[\w./-]{1,129}$/;
/** Bound on the names compared, because each comparison takes time */
const MOST_COMPARED = 2000;
const LEAST_PREFIX = 3;
const MOST_TYPOS = 3;

/** `known`: the existing names of this kind */
export function notFound(kind: keyof typeof LISTS, name: string, known: Iterable<string>): ForkdError {
  const shown = PLAIN.test(name) ? name : JSON.stringify(name.slice(0, 80));
  const nearest = nearestOf(name, known);
  const guess = nearest === undefined ? "" : `Did you mean ${nearest}? `;
  return new ForkdError("NOT_FOUND", `There is no ${kind} ${shown}.`, {
    hint: `${guess}\`${LISTS[kind]}\` lists what there is.`,
    details: { kind, ...(nearest === undefined ? {} : { nearest }) },
  });
}

/** The name with the fewest typos; else the shortest that is a prefix of `name`, or of which `name` is a prefix */
export function nearestOf(name: string, known: Iterable<string>): string | undefined {
  const wanted = name.toLowerCase();
  let best: { name: string; score: number } | undefined;
  let compared = 0;
  for (const candidate of known) {
    if (compared++ === MOST_COMPARED) break;
    if (!PLAIN.test(candidate)) continue;
    const score = scoreOf(wanted, candidate.toLowerCase());
    if (score !== undefined && (best === undefined || score < best.score)) best = { name: candidate, score };
  }
  return best?.name;
}

/** Lower is nearer; undefined: not similar */
function scoreOf(wanted: string, candidate: string): number | undefined {
  // A name of one letter has no typos: one substitution makes any other letter.
  const typos = wanted.length < 2 ? 0 : Math.min(MOST_TYPOS, Math.max(1, Math.floor(wanted.length / 4)));
  const apart = Math.abs(wanted.length - candidate.length);
  const distance = apart > typos ? Infinity : editDistance(wanted, candidate);
  if (distance <= typos) return distance;
  const [short, long] = wanted.length < candidate.length ? [wanted, candidate] : [candidate, wanted];
  return short.length >= LEAST_PREFIX && long.startsWith(short) ? MOST_TYPOS + apart : undefined;
}

/** Edit distance: substitutions, insertions, deletions, and swaps of neighbours */
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swap = isSwap ? (before[j - 2] ?? 0) + 1 : Infinity;
      next.push(Math.min(change, swap, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    before = row;
    row = next;
  }
  return row[b.length] ?? 0;
}

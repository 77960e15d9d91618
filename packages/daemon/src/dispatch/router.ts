// Trie router from method and path to a route. REST and E2B have one instance each.

import { ForkdError } from "@forkd/runtime/errors";

/** Limit of a path parameter; a longer segment matches no route */
const MAX_PARAM_LENGTH = 512;

export type Found<R> = { route: R; params: Record<string, string> };

type Leaf<R> = { route: R; method: string; names: string[]; order: number };
type Branch<R> = { fixed: Map<string, Branch<R>>; param: Branch<R> | undefined; leaves: Leaf<R>[] };

export class Router<R> {
  readonly #root: Branch<R> = emptyBranch();
  #size = 0;

  /** @param path segments that begin with ':' match any one segment */
  add(method: string, path: string, route: R): void {
    const names: string[] = [];
    let branch = this.#root;
    for (const segment of path.split("/").slice(1)) {
      if (segment.startsWith(":")) {
        names.push(segment.slice(1));
        branch = branch.param ??= emptyBranch();
      } else {
        let next = branch.fixed.get(segment);
        if (!next) branch.fixed.set(segment, (next = emptyBranch()));
        branch = next;
      }
    }
    branch.leaves.push({ route, method, names, order: this.#size++ });
  }

  /** null: no route. Fixed segments take precedence over parameters. Throws BAD_REQUEST for malformed escapes */
  find(method: string, path: string): Found<R> | null {
    for (const { leaves, values } of matches(this.#root, segmentsOf(path), [])) {
      const leaf = leaves.find((each) => each.method === method);
      if (leaf) return { route: leaf.route, params: Object.fromEntries(leaf.names.map((name, at) => [name, values[at] ?? ""])) };
    }
    return null;
  }

  /** Methods of the routes of a path, in table order. GET implies HEAD */
  methods(path: string): string[] {
    const leaves = this.#leavesOf(path).toSorted((a, b) => a.order - b.order);
    return [...new Set(leaves.flatMap(({ method }) => (method === "GET" ? ["GET", "HEAD"] : [method])))];
  }

  /** Whether the path has a route, of any method, that satisfies the predicate */
  some(path: string, fits: (route: R) => boolean): boolean {
    return this.#leavesOf(path).some(({ route }) => fits(route));
  }

  #leavesOf(path: string): Leaf<R>[] {
    return [...matches(this.#root, segmentsOf(path), [])].flatMap(({ leaves }) => leaves);
  }
}

function emptyBranch<R>(): Branch<R> {
  return { fixed: new Map(), param: undefined, leaves: [] };
}

function* matches<R>(branch: Branch<R>, segments: readonly string[], values: string[]): Generator<{ leaves: Leaf<R>[]; values: string[] }> {
  const [segment, ...rest] = segments;
  if (segment === undefined) {
    if (branch.leaves.length > 0) yield { leaves: branch.leaves, values };
    return;
  }
  const next = branch.fixed.get(segment);
  if (next) yield* matches(next, rest, values);
  if (branch.param && segment !== "" && segment.length <= MAX_PARAM_LENGTH) yield* matches(branch.param, rest, [...values, segment]);
}

/** Ignores one trailing slash. A path without a leading slash matches no route */
function segmentsOf(path: string): string[] {
  if (!path.startsWith("/")) return [path, ""];
  const segments = path.slice(1).split("/");
  if (segments.length > 1 && segments.at(-1) === "") segments.pop();
  if (!path.includes("%")) return segments;
  try {
    return segments.map((segment) => decodeURIComponent(segment));
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    throw new ForkdError("BAD_REQUEST", "Cannot read the URL: its escapes are malformed.", { cause: error });
  }
}

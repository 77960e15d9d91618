// State of the cluster: projects, tokens, tags, and logins of browsers. Few objects that change rarely: never one per sandbox.

/** `projects`: by name; `tags`: by project and tag, see `tagKey`; `tokens`: by principal, see `tokenKey`; `logins`: by hash */
export const KINDS = ["tokens", "projects", "tags", "logins"] as const;
export type Kind = (typeof KINDS)[number];

export type Stored = { value: Record<string, unknown>; version: string };

export type Removed = { name: string; removedAtMs: number };

/**
 * Reads are answered from memory, also while the store behind is away; writes throw CLUSTER_STATE_UNAVAILABLE then. A
 * write names the version that it replaces, and throws CONFLICT if there is another one
 */
export type ClusterState = AsyncDisposable & {
  get(kind: Kind, name: string): Stored | undefined;
  all(kind: Kind): ReadonlyMap<string, Stored>;
  /** objects that were removed within the last day */
  removed(kind: Kind): readonly Removed[];
  /** @param replaces version that is replaced; null: there must be none */
  put(kind: Kind, name: string, value: Record<string, unknown>, replaces: string | null): Promise<void>;
  remove(kind: Kind, name: string, replaces: string): Promise<void>;
  /** Called after each change, by this gateway or another */
  subscribe(listener: (kind: Kind, name: string) => void): () => void;
};

/** Another write came first */
export class Conflict extends Error {}

/** Neither part may contain the separator: names are letters, digits, '.', '_' and '-' */
export function tagKey(project: string, tag: string): string {
  return `${project}~${tag}`;
}

/** Of a principal, which is NAME in the project `default` and PROJECT/NAME in others */
export function tokenKey(principal: string): string {
  return principal.replace("/", "~");
}

export function principalOf(key: string): string {
  return key.replace("~", "/");
}

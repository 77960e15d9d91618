// What pushes leave for later ones: uploads that broke off, and which repositories have which blobs. To lose it costs bytes, nothing else.

const MAX_ENTRIES = 10_000;

export class PushMemory {
  readonly #sessions = new Map<string, string>();
  readonly #places = new Map<string, string>();

  /** Where the upload of a blob got to */
  session(host: string, repository: string, digest: string): { get: () => string | undefined; set: (url: string | undefined) => void } {
    const key = `${host}/${repository} ${digest}`;
    return { get: () => this.#sessions.get(key), set: (url) => put(this.#sessions, key, url) };
  }

  /** A repository of a registry that has a blob, other than this one */
  neighbour(host: string, repository: string, digest: string): string | undefined {
    const place = this.#places.get(`${host} ${digest}`);
    return place === repository ? undefined : place;
  }

  isAt(host: string, repository: string, digest: string): void {
    put(this.#places, `${host} ${digest}`, repository);
  }
}

/** The newest are kept */
function put(map: Map<string, string>, key: string, value: string | undefined): void {
  map.delete(key);
  if (value === undefined) return;
  map.set(key, value);
  const oldest = map.size > MAX_ENTRIES ? map.keys().next().value : undefined;
  if (oldest !== undefined) map.delete(oldest);
}

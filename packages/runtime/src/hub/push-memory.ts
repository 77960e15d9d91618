// Hints for later pushes: interrupted uploads, and blobs by repository. Without them a push only sends more bytes.

import type { UploadSession } from "./blob-upload.ts";

const MAX_ENTRIES = 10_000;

export class PushMemory {
  readonly #sessions = new Map<string, string>();
  readonly #places = new Map<string, string>();

  /** Position of an interrupted upload */
  session(host: string, repository: string, digest: string): UploadSession {
    const key = `${host}/${repository} ${digest}`;
    const take = (): string | undefined => {
      const url = this.#sessions.get(key);
      this.#sessions.delete(key);
      return url;
    };
    return { take, leave: (url) => put(this.#sessions, key, url) };
  }

  /** Another repository of the registry that has a blob */
  neighbour(host: string, repository: string, digest: string): string | undefined {
    const place = this.#places.get(`${host} ${digest}`);
    return place === repository ? undefined : place;
  }

  isAt(host: string, repository: string, digest: string): void {
    put(this.#places, `${host} ${digest}`, repository);
  }
}

/** The newest are kept */
function put(map: Map<string, string>, key: string, value: string): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.size > MAX_ENTRIES ? map.keys().next().value : undefined;
  if (oldest !== undefined) map.delete(oldest);
}

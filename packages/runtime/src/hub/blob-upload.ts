// Uploads one blob to an OCI registry: skipped when it exists, mounted when another repository has it, else resumed where it stopped.

import { ForkdError } from "../errors.ts";
import type { RegistryClient } from "../oci/registry-client.ts";
import { whyFailed } from "../oci/web.ts";
import type { LocalBlob } from "./local-blob.ts";
import { refusalOf } from "./refusal.ts";

/** Large enough for the round trip not to matter, small enough to repeat */
const CHUNK_BYTES = 32 * 1024 ** 2;
/** Consecutive attempts without progress before an upload fails */
const MAX_FRUITLESS = 5;

export type Sent = "there" | "mounted" | "sent";

/** An interrupted upload; taking it gives exclusive use */
export type UploadSession = { take: () => string | undefined; leave: (url: string) => void };

export type UploadOpts = {
  /** a repository of the same registry that has the blob */
  mountFrom?: string | undefined;
  /** an earlier attempt to resume, and the function that stores this one when it is interrupted */
  session?: UploadSession | undefined;
  chunkBytes?: number | undefined;
  signal?: AbortSignal | undefined;
  /** called with the sent bytes; negative when they must be sent again */
  onBytes?: ((bytes: number) => void) | undefined;
};

/** An upload session of the registry, and the bytes that it has */
type Session = { url: URL; offset: number };

export async function uploadBlob(client: RegistryClient, blob: LocalBlob, opts: UploadOpts = {}): Promise<Sent> {
  const head = await client.ask("HEAD", `blobs/${blob.digest}`);
  await head.body?.cancel();
  if (head.ok) return "there";
  const upload = new BlobUpload(client, blob, opts);
  try {
    return await upload.run();
  } catch (error) {
    if (upload.url !== undefined) opts.session?.leave(upload.url);
    throw error;
  }
}

class BlobUpload {
  readonly #client: RegistryClient;
  readonly #blob: LocalBlob;
  readonly #opts: UploadOpts;
  readonly #chunkBytes: number;
  #session: Session | undefined;
  /** whether the registry accepts a blob in parts; some do not */
  #inChunks: boolean;
  /** bytes that were reported as sent */
  #reported = 0;

  constructor(client: RegistryClient, blob: LocalBlob, opts: UploadOpts) {
    this.#client = client;
    this.#blob = blob;
    this.#opts = opts;
    this.#chunkBytes = opts.chunkBytes ?? CHUNK_BYTES;
    this.#inChunks = blob.size > this.#chunkBytes;
  }

  /** Where it continues, after it has begun */
  get url(): string | undefined {
    return this.#session?.url.href;
  }

  async run(): Promise<Sent> {
    let fruitless = 0;
    let known = this.#opts.session?.take();
    for (;;) {
      const before = this.#session?.offset ?? 0;
      try {
        if (known !== undefined) this.#keep(this.#inChunks ? await this.#statusOf(new URL(known)) : undefined);
        if (this.#session === undefined && (await this.#begin())) return "mounted";
        if (this.#inChunks) await this.#sendChunks();
        await this.#finish();
        return "sent";
      } catch (error) {
        if (this.#opts.signal?.aborted) throw new ForkdError("CANCELLED", "The transfer was cancelled.", { cause: error });
        if (error instanceof ForkdError) throw error;
        fruitless = (this.#session?.offset ?? 0) > before ? 0 : fruitless + 1;
        if (fruitless >= MAX_FRUITLESS) {
          throw this.#client.failure(
            `The upload of ${this.#blob.digest.slice(0, 19)} broke off ${fruitless} times: ${whyFailed(error)}.`,
            error,
          );
        }
        await this.#client.pause(fruitless);
        known = this.url;
      }
    }
  }

  /** Returns whether the registry had the blob in another repository */
  async #begin(): Promise<boolean> {
    const { mountFrom } = this.#opts;
    const query = mountFrom === undefined ? "" : `?mount=${this.#blob.digest}&from=${encodeURIComponent(mountFrom)}`;
    const response = await this.#client.ask("POST", `blobs/uploads/${query}`, { headers: { "content-length": "0" } });
    await this.#expect(response, [201, 202], "begin");
    if (response.status === 201) return true;
    this.#keep({ url: this.#client.locationOf(response), offset: 0 });
    return false;
  }

  async #sendChunks(): Promise<void> {
    const { size } = this.#blob;
    for (let session = this.#session; session !== undefined && session.offset < size; session = this.#session) {
      const { url, offset } = session;
      const end = Math.min(offset + this.#chunkBytes, size);
      const response = await this.#send("PATCH", url, offset, end, { "content-range": `${offset}-${end - 1}` });
      if (offset === 0 && response.status >= 400 && response.status < 500) {
        await response.body?.cancel();
        this.#inChunks = false;
        this.#keep(undefined);
        throw new Error(`the registry takes no chunks (${response.status})`);
      }
      await this.#expect(response, [202], "go on");
      this.#keep({ url: this.#client.locationOf(response), offset: end });
    }
  }

  /** Commits the upload with its digest; sends the complete blob if nothing was sent */
  async #finish(): Promise<void> {
    const { digest, size } = this.#blob;
    const { url: base, offset } = this.#session ?? {};
    if (base === undefined || offset === undefined) throw new Error("there is no upload to finish");
    const url = new URL(base);
    url.searchParams.set("digest", digest);
    const response = await this.#send("PUT", url, offset, size, {});
    await this.#expect(response, [201, 204], "end");
    this.#keep(undefined);
  }

  async #send(method: "PATCH" | "PUT", url: URL, start: number, end: number, headers: Record<string, string>): Promise<Response> {
    const open = (): AsyncIterable<Uint8Array> => partOf(this.#blob, start, end, (position) => this.#report(position));
    const body = { bytes: end - start, open };
    return this.#client.send(method, url, { headers: { ...headers, "content-type": "application/octet-stream" }, body });
  }

  async #statusOf(url: URL): Promise<Session | undefined> {
    const response = await this.#client.send("GET", url);
    await response.body?.cancel();
    const last = /^(?:bytes=)?0-(\d+)$/.exec(response.headers.get("range") ?? "")?.[1];
    if (!response.ok || last === undefined) return undefined;
    // an empty upload also reports 0-0
    const offset = last === "0" ? 0 : Number(last) + 1;
    if (offset > this.#blob.size) return undefined;
    return { url: response.headers.has("location") ? this.#client.locationOf(response) : url, offset };
  }

  #keep(session: Session | undefined): void {
    this.#session = session;
    if (session !== undefined) this.#report(session.offset);
  }

  #report(position: number): void {
    this.#opts.onBytes?.(position - this.#reported);
    this.#reported = position;
  }

  /** Throws a ForkdError for failures that another attempt would not fix */
  async #expect(response: Response, statuses: readonly number[], what: string): Promise<void> {
    if (statuses.includes(response.status)) {
      await response.body?.cancel();
      return;
    }
    const why = await refusalOf(response);
    if (response.status >= 500 || response.status === 429 || response.status === 416) throw new Error(`the registry answered ${why}`);
    throw this.#client.failure(`Cannot ${what} the upload of ${this.#blob.digest.slice(0, 19)}: the registry answered ${why}.`);
  }
}

async function* partOf(blob: LocalBlob, start: number, end: number, onPosition: (position: number) => void): AsyncGenerator<Uint8Array> {
  let position = start;
  onPosition(position);
  for await (const chunk of blob.open(start, end)) {
    yield chunk;
    position += chunk.length;
    onPosition(position);
  }
}

// Calls about packs, which are snapshots that travel, and the keys that sign them.

import { DaemonCalls } from "./daemon-calls.ts";
import { path, split } from "./wire.ts";
import type { FileContent } from "./file-options.ts";
import type { CallOptions } from "./options.ts";
import type { CreateKeyOptions, PreparePackOptions, ReadPackOptions, UnpackOptions } from "./pack-options.ts";
import type * as wire from "./schema.gen.ts";

/** A large memory is compressed before the first byte comes, and written before the answer does */
const LONG_MS = 60 * 60_000;

export class PackCalls extends DaemonCalls {
  /** Compresses a snapshot, so that `readPack` can begin at once, and says what is in its pack. Scope admin. */
  async preparePack(tag: string, opts: PreparePackOptions = {}): Promise<wire.Pack> {
    const { fields, call } = split(opts);
    const json: wire.PreparePack = { ...fields, without: opts.without && [...opts.without] };
    const long = { ...call, timeoutMs: call.timeoutMs ?? LONG_MS, canRepeat: true, json };
    return await this.client.progress("POST", path`/v1/snapshots/${tag}/pack`, long, opts.onProgress);
  }

  /**
   * A snapshot with everything it needs, as one file that comes bit by bit. Scope admin.
   *
   * @example
   * ```ts
   * await writeFile("python.forkd", controller.readPack("python"));
   * ```
   */
  readPack(tag: string, opts: ReadPackOptions = {}): AsyncIterable<Uint8Array> {
    const { signal, timeoutMs = LONG_MS, level, sign, without } = opts;
    const query = { level, sign, without: without?.join(",") };
    return this.client.stream("GET", path`/v1/snapshots/${tag}/pack`, { signal, timeoutMs, query });
  }

  /**
   * Takes a pack in: it is checked as a whole, and appears at once or not at all. Scope admin.
   *
   * @throws ConflictError when the tag is taken, or the pack does not fit this machine
   * @example
   * ```ts
   * const { snapshot } = await controller.unpack(createReadStream("python.forkd"), { tag: "python" });
   * ```
   */
  async unpack(pack: FileContent, opts: UnpackOptions = {}): Promise<wire.Unpacked> {
    const { signal, timeoutMs = LONG_MS, ...query } = opts;
    return await this.client.json("POST", "/v1/packs", { signal, timeoutMs, query, content: pack });
  }

  /** Keys that sign packs, and those of others that are known. */
  async listKeys(opts: CallOptions = {}): Promise<wire.Key[]> {
    return await this.client.json("GET", "/v1/keys", opts);
  }

  /** Makes a key of the daemon's own, or makes somebody's public key known. Scope admin. */
  async createKey(name: string, opts: CreateKeyOptions = {}): Promise<wire.Key> {
    const { fields, call } = split(opts);
    const json: wire.CreateKey = { name, ...fields };
    return await this.client.json("POST", "/v1/keys", { ...call, json });
  }

  /** One key, by name or the beginning of its id; never its private half. */
  async getKey(name: string, opts: CallOptions = {}): Promise<wire.Key> {
    return await this.client.json("GET", path`/v1/keys/${name}`, opts);
  }

  /** Removes a key. Scope admin. */
  async deleteKey(name: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("DELETE", path`/v1/keys/${name}`, opts);
  }
}

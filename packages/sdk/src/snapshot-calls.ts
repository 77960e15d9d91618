// Calls about what sandboxes are made from: images and snapshots.

import { PackCalls } from "./pack-calls.ts";
import { pairs, path, split, toWire, withKey } from "./wire.ts";
import type {
  CallOptions,
  CreateSnapshotOptions,
  DeleteSnapshotOptions,
  ImageSource,
  ListSnapshotsOptions,
  OnceOptions,
  Page,
  ProgressOptions,
  UpdateSnapshotOptions,
} from "./options.ts";
import type * as wire from "./schema.gen.ts";

/** A boot with a long warm-up, or a large download */
const LONG_MS = 60 * 60_000;

export class SnapshotCalls extends PackCalls {
  /** Images, the root file systems that snapshots boot from. */
  async listImages(opts: CallOptions = {}): Promise<wire.Image[]> {
    return await this.client.json("GET", "/v1/images", opts);
  }

  /** One image, by name or id. */
  async getImage(name: string, opts: CallOptions = {}): Promise<wire.Image> {
    return await this.client.json("GET", path`/v1/images/${name}`, opts);
  }

  /**
   * Builds an image from Debian packages, pulls one from a registry, or imports a file of the daemon's machine. Scope admin. May take an
   * hour unless `timeoutMs` says otherwise.
   *
   * @example
   * ```ts
   * await controller.createImage({ name: "py", packages: ["python3", "python3-numpy"] });
   * await controller.createImage({ reference: "python:3.13-slim" }, { onProgress: (p) => console.log(p.step) });
   * ```
   */
  async createImage(source: ImageSource, opts: ProgressOptions = {}): Promise<wire.CreatedImage> {
    const { call } = split(opts);
    const json: wire.CreateImage = toWire(source);
    return await this.client.progress("POST", "/v1/images", { ...long(call), json }, opts.onProgress);
  }

  /** Removes a name of an image, and the data with the last one. Scope admin. */
  async deleteImage(name: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("DELETE", path`/v1/images/${name}`, opts);
  }

  /** Snapshots; pages only when `limit` is given. */
  async listSnapshots(opts: ListSnapshotsOptions = {}): Promise<Page<wire.Snapshot>> {
    const { signal, timeoutMs, metadata, ...query } = opts;
    return await this.client.page("/v1/snapshots", { signal, timeoutMs, query: { ...query, metadata: pairs(metadata) } });
  }

  /**
   * Boots an image, warms it and freezes it. Scope admin. May take an hour unless `timeoutMs` says otherwise.
   *
   * @throws ConflictError when the tag is taken
   * @example
   * ```ts
   * await controller.createSnapshot("python", {
   *   image: "py",
   *   warmUp: { kernels: [{ language: "python", code: "import numpy" }] },
   * });
   * ```
   */
  async createSnapshot(tag: string, opts: CreateSnapshotOptions = {}): Promise<wire.Snapshot> {
    const { fields, call } = split(opts);
    const { warmUp, network } = opts;
    const nested = { warm_up: warmUp && toWire(warmUp), network: network && toWire(network) };
    const json: wire.CreateSnapshot = { tag, ...fields, ...nested };
    return await this.client.progress("POST", "/v1/snapshots", { ...long(call), json }, opts.onProgress);
  }

  /** One snapshot. */
  async getSnapshot(tag: string, opts: CallOptions = {}): Promise<wire.Snapshot> {
    return await this.client.json("GET", path`/v1/snapshots/${tag}`, opts);
  }

  /** Sizes and lineage of a snapshot. */
  async snapshotInfo(tag: string, opts: CallOptions = {}): Promise<wire.SnapshotDetails> {
    return await this.client.json("GET", path`/v1/snapshots/${tag}/info`, opts);
  }

  /** Renames a snapshot, replaces its metadata, sets how many VMMs wait for it. Scope admin. */
  async updateSnapshot(tag: string, opts: UpdateSnapshotOptions): Promise<wire.Snapshot> {
    const { fields, call } = split(opts);
    const json: wire.UpdateSnapshot = fields;
    return await this.client.json("PATCH", path`/v1/snapshots/${tag}`, { ...call, json });
  }

  /**
   * Removes a snapshot. Scope admin.
   * @throws ConflictError when something needs it, with what in `details`
   */
  async deleteSnapshot(tag: string, opts: DeleteSnapshotOptions = {}): Promise<void> {
    const { signal, timeoutMs, ...query } = opts;
    await this.client.empty("DELETE", path`/v1/snapshots/${tag}`, { signal, timeoutMs, query });
  }

  /** A copy of a snapshot, under the tag `to`, that builds on no other. Scope admin. */
  async compactSnapshot(tag: string, to: string, opts: OnceOptions = {}): Promise<wire.Snapshot> {
    const json: wire.CompactSnapshot = { to };
    return await this.client.json("POST", path`/v1/snapshots/${tag}/compact`, { ...long(opts), json });
  }
}

function long(call: OnceOptions): OnceOptions {
  return withKey({ ...call, timeoutMs: call.timeoutMs ?? LONG_MS });
}

// Small snapshots without a VM, and the host facts that a daemon has.

import { randomBytes } from "node:crypto";
import { link, mkdir, mkdtemp, open, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeOverlay } from "../../src/disk/overlay.ts";
import { prepareHome, resolveHome } from "../../src/home.ts";
import { DEFAULT_CONFIG } from "../../src/image/manifest.ts";
import { ImageStore } from "../../src/image/store.ts";
import { NO_NETWORK, type NetworkPolicy } from "../../src/egress/policy.ts";
import { DeltaWriter } from "../../src/pack/delta-file.ts";
import type { PackHost } from "../../src/pack/fit.ts";
import { packBytes, openPack } from "../../src/pack/container.ts";
import { preparePack, type PackStores, type PrepareOptions } from "../../src/pack/prepare.ts";
import { receivePack, type Received, type ReceiveOptions } from "../../src/pack/receive.ts";
import { linkEarlier } from "../../src/snapshot/deltas.ts";
import { SnapshotStore, type Snapshot } from "../../src/snapshot/store.ts";
import type { SnapshotManifest } from "../../src/snapshot/manifest.ts";
import { newId } from "../../src/util/id.ts";
import { FAKE_MACHINE, FAKE_RULES } from "../../../../tests/helpers/fake-engine.ts";

export const PAGE = 4096;
const MEMORY_MIB = 4;
const DISK_MIB = 1;
const KEY_BYTES = 16;

export const HOST: PackHost = {
  architecture: "x86_64",
  protocol: 2,
  engine: FAKE_RULES,
};

const TRUST_ANY = { policy: "any", keys: new Set<string>() } as const;

export class FakeHome implements AsyncDisposable {
  readonly dir: string;
  readonly stores: PackStores;

  private constructor(dir: string, stores: PackStores) {
    this.dir = dir;
    this.stores = stores;
  }

  /** In a new folder, or in an existing one */
  static async make(at?: string): Promise<FakeHome> {
    const dir = at ?? (await mkdtemp(join(tmpdir(), "forkd-pack-")));
    const home = await prepareHome(resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") }));
    return new FakeHome(dir, { home, snapshots: new SnapshotStore(home), images: new ImageStore(home) });
  }

  async image(): Promise<string> {
    const rootfsTmpPath = join(this.stores.home.staging, "rootfs");
    await writeFile(rootfsTmpPath, Buffer.alloc(300_000, "squashfs"));
    const config = { ...DEFAULT_CONFIG, env: { PATH: "/bin", A: "b" } };
    const source = { kind: "import", file: "x.tar", format: "rootfs" } as const;
    return (await this.stores.images.add({ rootfsTmpPath, name: "img", config, source })).id;
  }

  /** A snapshot whose memory has data, zeroes and duplicate pages */
  async base(
    tag: string,
    opts: { disk?: boolean; memoryMiB?: number; fillMiB?: number; network?: NetworkPolicy; id?: string | undefined } = {},
  ): Promise<Snapshot> {
    const imageId = await this.image();
    const { memoryMiB = MEMORY_MIB, fillMiB = 0, id } = opts;
    return this.#publish({ tag, id, imageId, memoryMiB }, async (dir) => {
      await using memory = await open(join(dir, "memory.ram"), "wx");
      await memory.truncate(memoryMiB * 1024 * 1024);
      for (let at = 0; at < fillMiB; at++) await memory.write(randomBytes(1024 * 1024), 0, 1024 * 1024, at * 1024 * 1024);
      const page = randomBytes(PAGE);
      for (const at of [3, 4, 5, 300, 301, 700]) await memory.write(randomBytes(PAGE), 0, PAGE, at * PAGE);
      for (const at of [1, 9, 10, 600]) await memory.write(page, 0, PAGE, at * PAGE);
      const layers: string[] = [];
      if (opts.disk) {
        const id = newId("dk");
        await using raw = await open(join(dir, `${id}.raw`), "wx");
        await raw.truncate(DISK_MIB * 1024 * 1024);
        await raw.write(randomBytes(5000), 0, 5000, 40_000);
        layers.push(id);
      }
      const { network = NO_NETWORK } = opts;
      return { memory: { kind: "base", bytes: 40_960 }, disk: opts.disk ? { sizeMiB: DISK_MIB, layers } : null, depth: 0, network };
    });
  }

  async branch(
    tag: string,
    from: Snapshot,
    { id, network = NO_NETWORK }: { id?: string | undefined; network?: NetworkPolicy } = {},
  ): Promise<Snapshot> {
    const { manifest } = from;
    return this.#publish({ tag, id, imageId: manifest.imageId, memoryMiB: MEMORY_MIB }, async (dir) => {
      const delta = join(dir, "memory.delta");
      await using file = await open(delta, "wx+");
      const writer = new DeltaWriter(file, MEMORY_MIB * 1024 * 1024);
      await writer.data(2, randomBytes(2 * PAGE));
      await writer.zero(5, 1);
      const twice = randomBytes(PAGE);
      await writer.data(400, twice);
      await writer.data(401, twice);
      await writer.finish();
      const layers: string[] = [];
      for (const { path, id, format } of from.layers) {
        await link(path, join(dir, `${id}.${format}`));
        layers.push(id);
      }
      if (manifest.disk) {
        const id = newId("dk");
        await writeOverlay(join(dir, `${id}.qcow2`), DISK_MIB);
        layers.push(id);
      }
      const disk = manifest.disk && { sizeMiB: DISK_MIB, layers };
      return {
        memory: { kind: "delta", base: manifest.id, pages: 5, bytes: 5 * PAGE },
        disk,
        depth: manifest.depth + 1,
        branchedFrom: newId("sb"),
        network,
      };
    });
  }

  /**
   * The next branch of the same source: shares the delta files of `previous` and adds one that replaces and adds pages
   */
  async laterBranch(tag: string, previous: Snapshot): Promise<Snapshot> {
    const { manifest } = previous;
    const { memory } = manifest;
    if (memory.kind !== "delta") throw new Error("not a branch");
    const { imageId, depth, branchedFrom } = manifest;
    return this.#publish({ tag, id: undefined, imageId, memoryMiB: MEMORY_MIB }, async (dir) => {
      await linkEarlier(previous.deltas, dir);
      await using file = await open(join(dir, "memory.delta"), "wx+");
      const writer = new DeltaWriter(file, MEMORY_MIB * 1024 * 1024);
      await writer.data(3, randomBytes(PAGE));
      await writer.zero(400, 1);
      await writer.data(800, randomBytes(3 * PAGE));
      await writer.finish();
      const earlier = [...(memory.earlier ?? []), memory.bytes];
      return { memory: { ...memory, pages: 8, bytes: 6 * PAGE, earlier }, disk: null, depth, branchedFrom };
    });
  }

  /** The bytes of a pack */
  async pack(tag: string, opts: PrepareOptions = {}): Promise<Buffer> {
    await using pack = await preparePack(this.stores, tag, opts);
    return Buffer.concat(await Array.fromAsync(packBytes(pack)));
  }

  async unpack(bytes: Buffer | AsyncIterable<Buffer>, opts: Partial<ReceiveOptions> = {}): Promise<Received> {
    const dir = await mkdtemp(join(this.dir, "spool-"));
    try {
      const source = await openPack(Buffer.isBuffer(bytes) ? pieces(bytes) : bytes, dir);
      try {
        return await receivePack(this.stores, source, { trust: TRUST_ANY, host: HOST, signal: new AbortController().signal, ...opts });
      } finally {
        await source.close();
      }
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  }

  /** All files in the store, except caches */
  async left(): Promise<string[]> {
    const all = await readdir(this.stores.home.root, { recursive: true });
    return all
      .filter((path) => !path.startsWith("cache/") && path.includes("/") && path !== "snapshots/tags" && path !== "images/names")
      .toSorted();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.dir, { recursive: true, force: true });
  }

  async #publish(
    { tag, id = newId("sn"), imageId, memoryMiB }: { tag: string; id: string | undefined; imageId: string; memoryMiB: number },
    write: (dir: string) => Promise<Partial<SnapshotManifest> & Pick<SnapshotManifest, "memory" | "disk" | "depth">>,
  ): Promise<Snapshot> {
    const { home, snapshots } = this.stores;
    const staged = join(home.staging, tag.replace("/", "@"));
    await mkdir(staged);
    const parts = await write(staged);
    // the fake engine's device state begins with the agent's key
    await writeFile(
      join(staged, "device.state"),
      Buffer.concat([Buffer.alloc(KEY_BYTES), Buffer.alloc(9000 - KEY_BYTES, `state of ${tag}`)]),
    );
    await snapshots.reserve(tag);
    const snapshot = await snapshots.publish(staged, {
      version: 1,
      id,
      tag,
      createdAt: "2026-01-02T03:04:05.678Z",
      shape: {
        ...FAKE_MACHINE,
        cpu: "Nehalem-v1",
        accelerator: "tcg",
        vcpus: 1,
        memoryMiB,
      },
      imageId,
      guestKernelId: "k".repeat(8),
      agentKey: "00".repeat(KEY_BYTES),
      agentProtocol: 2,
      deviceStateBytes: 9000,
      kernels: [{ language: "python", version: "3.11", reseed: "memory", busy: false }],
      env: { Z: "1", A: "2" },
      network: NO_NETWORK,
      mounts: [],
      branchedFrom: null,
      ...parts,
    });
    await snapshots.release(tag);
    return snapshot;
  }
}

/** The bytes in pieces, as a network delivers them */
export async function* pieces(bytes: Buffer, size = 65_536): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

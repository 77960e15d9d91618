// Small snapshots that no VM made, and what a daemon would know of its host.

import { randomBytes } from "node:crypto";
import { link, mkdir, mkdtemp, open, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeOverlay } from "../../src/disk/overlay.ts";
import { prepareHome, resolveHome } from "../../src/home.ts";
import { DEFAULT_CONFIG } from "../../src/image/manifest.ts";
import { ImageStore } from "../../src/image/store.ts";
import { DeltaWriter } from "../../src/pack/delta-file.ts";
import type { PackHost } from "../../src/pack/fit.ts";
import { packBytes, openPack } from "../../src/pack/container.ts";
import { preparePack, type PackStores, type PrepareOptions } from "../../src/pack/prepare.ts";
import { receivePack, type Received, type ReceiveOptions } from "../../src/pack/receive.ts";
import { SnapshotStore, type Snapshot } from "../../src/snapshot/store.ts";
import type { SnapshotManifest } from "../../src/snapshot/manifest.ts";
import { newId } from "../../src/util/id.ts";

export const PAGE = 4096;
const MEMORY_MIB = 4;
const DISK_MIB = 1;

export const HOST: PackHost = {
  architecture: "x86_64",
  qemuVersion: "7.2.22",
  accelerator: "tcg",
  protocol: 2,
  capabilities: async () => ({
    machines: new Set(["pc-q35-7.2"]),
    cpus: new Map([
      ["Nehalem-v1", { missing: [], isPortable: true }],
      ["Haswell-v4", { missing: ["pcid", "x2apic"], isPortable: true }],
      ["host", { missing: [], isPortable: false }],
    ]),
  }),
};

const TRUST_ANY = { policy: "any", keys: new Set<string>() } as const;

export class FakeHome implements AsyncDisposable {
  readonly dir: string;
  readonly stores: PackStores;

  private constructor(dir: string, stores: PackStores) {
    this.dir = dir;
    this.stores = stores;
  }

  static async make(): Promise<FakeHome> {
    const dir = await mkdtemp(join(tmpdir(), "forkd-pack-"));
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

  /** A machine whose memory has data, zeroes, and pages that are there twice */
  async base(tag: string, opts: { disk?: boolean; memoryMiB?: number; fillMiB?: number } = {}): Promise<Snapshot> {
    const imageId = await this.image();
    const { memoryMiB = MEMORY_MIB, fillMiB = 0 } = opts;
    return this.#publish(tag, imageId, memoryMiB, async (dir) => {
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
      return { memory: { kind: "base", bytes: 40_960 }, disk: opts.disk ? { sizeMiB: DISK_MIB, layers } : null, depth: 0 };
    });
  }

  async branch(tag: string, from: Snapshot): Promise<Snapshot> {
    const { manifest } = from;
    return this.#publish(tag, manifest.imageId, MEMORY_MIB, async (dir) => {
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
      };
    });
  }

  /** A pack as a file's bytes */
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

  /** Everything in the store but what can be made again */
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
    tag: string,
    imageId: string,
    memoryMiB: number,
    write: (dir: string) => Promise<Partial<SnapshotManifest> & Pick<SnapshotManifest, "memory" | "disk" | "depth">>,
  ): Promise<Snapshot> {
    const { home, snapshots } = this.stores;
    const staged = join(home.staging, tag);
    await mkdir(staged);
    const parts = await write(staged);
    await writeFile(join(staged, "device.state"), Buffer.alloc(9000, `state of ${tag}`));
    await snapshots.reserve(tag);
    const snapshot = await snapshots.publish(staged, {
      version: 1,
      id: newId("sn"),
      tag,
      createdAt: "2026-01-02T03:04:05.678Z",
      shape: {
        engine: "qemu",
        engineVersion: "7.2.22",
        machine: "pc-q35-7.2",
        cpu: "Nehalem-v1",
        accelerator: "tcg",
        vcpus: 1,
        memoryMiB,
      },
      imageId,
      guestKernelId: "k".repeat(8),
      agentKey: "0".repeat(32),
      agentProtocol: 2,
      deviceStateBytes: 9000,
      kernels: [{ language: "python", version: "3.11", reseed: "memory", busy: false }],
      env: { Z: "1", A: "2" },
      network: { mode: "none", allow: [], egressLimitBytes: null },
      mounts: [],
      branchedFrom: null,
      ...parts,
    });
    await snapshots.release(tag);
    return snapshot;
  }
}

/** As a network would bring it */
export async function* pieces(bytes: Buffer, size = 65_536): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

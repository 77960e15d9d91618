// A daemon inside a small Internet, with a snapshot whose forks can look at the network.

import { Sandbox, type NetworkOptions } from "forkd";
import { TestDaemon } from "./daemon.ts";
import { PROBES } from "./net-guest.ts";
import { NetWorld, OUTSIDE } from "./net-world.ts";
import { PYTHON_IMAGE } from "./vm.ts";

export const DNS_OPTIONS = ["--dns-servers", "127.0.0.1:5353"];

export class NetDaemon implements AsyncDisposable {
  readonly world: NetWorld;
  readonly daemon: TestDaemon;

  private constructor(world: NetWorld, daemon: TestDaemon) {
    this.world = world;
    this.daemon = daemon;
  }

  /** @param files folder that the web servers show */
  static async start(files: string = import.meta.dirname): Promise<NetDaemon> {
    const world = await NetWorld.make(files);
    const daemon = await TestDaemon.make();
    daemon.prefix = world.inside;
    const all = new NetDaemon(world, daemon);
    try {
      await daemon.up(DNS_OPTIONS);
      return all;
    } catch (error) {
      await all[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The snapshot `net`, without a network */
  async makeSnapshot(tag = "net", network?: NetworkOptions): Promise<void> {
    const warmUp = { kernels: [{ language: "python" as const, code: PROBES }] };
    const given = { image: PYTHON_IMAGE, memoryMib: 256, warmUp, timeoutMs: 180_000 };
    await this.daemon.controller.createSnapshot(tag, { ...given, ...(network ? { network } : {}) });
  }

  async sandbox(network?: NetworkOptions, tag = "net"): Promise<Sandbox> {
    return Sandbox.create(tag, { controller: this.daemon.controller, ...(network ? { network } : {}) });
  }

  /** Names that most tests use; forgets what was seen before */
  async beginTest(): Promise<void> {
    this.world.forget();
    await this.world.name({
      "pub.test": { A: [[OUTSIDE.public]], AAAA: [[OUTSIDE.public6]] },
      "four.test": { A: [[OUTSIDE.public]] },
      "www.pub.test": { A: [[OUTSIDE.otherPublic]] },
      "private.test": { A: [[OUTSIDE.private, OUTSIDE.metadata, "127.0.0.1"]], AAAA: [[OUTSIDE.unique6, "::1"]] },
      "mixed.test": { A: [[OUTSIDE.private, OUTSIDE.public]] },
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.daemon[Symbol.asyncDispose]();
    } finally {
      await this.world[Symbol.asyncDispose]();
    }
  }
}

// A daemon inside the test network (NetWorld), with a snapshot that contains the network probes.

import { Sandbox, type NetworkOptions } from "forkd";
import { TestDaemon } from "./daemon.ts";
import { PROBES } from "./net-guest.ts";
import { NetWorld, OUTSIDE } from "./net-world.ts";
import { warmSnapshot } from "./shared-stores.ts";
import { PYTHON_IMAGE } from "./vm.ts";

export const DNS_OPTIONS = ["--dns-servers", "127.0.0.1:5353"];

export class NetDaemon implements AsyncDisposable {
  readonly world: NetWorld;
  readonly daemon: TestDaemon;

  private constructor(world: NetWorld, daemon: TestDaemon) {
    this.world = world;
    this.daemon = daemon;
  }

  /** @param files folder that the web servers serve */
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

  /** Makes the snapshot `net`, whose network is off */
  async makeSnapshot(): Promise<void> {
    const warmUp = { kernels: [{ language: "python" as const, code: PROBES }] };
    await warmSnapshot(this.daemon.home, "net", { image: PYTHON_IMAGE, memoryMiB: 256, warmUp });
  }

  async sandbox(network?: NetworkOptions, tag = "net"): Promise<Sandbox> {
    return Sandbox.create(tag, { controller: this.daemon.controller, ...(network ? { network } : {}) });
  }

  /** Registers the names that most tests use and clears the recorded connections */
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

// Trial of a small guest: boot, freeze, restore, branch; checks that a page written in the child is in the fork of its branch.
// Then the same with a frozen copy of the child.

import { randomBytes } from "node:crypto";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { AgentConnection } from "../agent/wire/connection.ts";
import { within } from "../util/within.ts";
import { GuestFiles } from "../agent/files/client.ts";
import type { Home } from "../home.ts";
import { makeRunDir } from "../host/run-dirs.ts";
import type { GuestKernel } from "../guest-kernel/guest-kernel.ts";
import { Warden } from "../warden/warden.ts";
import { tailOf } from "../util/tail.ts";
import type { ConfinementState, CpuChoice, Engine, InstalledEngine, MachineShape, RestoreSpec, Vm } from "../vmm/driver.ts";

const MIB = 1024 * 1024;
const MEMORY_MIB = 128;
const PAGE_BYTES = 4096;
const PAGE_PATH = "/forkd-trial";
/** Length of the shown end of a console: a kernel panic is in the last lines */
const CONSOLE_LINES = 4;

export type TrialOptions = {
  engine: InstalledEngine;
  guestKernel: GuestKernel;
  warden: string;
  confinement: ConfinementState;
  shape: CpuChoice & Pick<MachineShape, "accelerator">;
  /** time limit for the boot, and again for the rest */
  withinMs: number;
  signal?: AbortSignal | undefined;
};

export type TrialResult = {
  /** why the memory of a branch could not be taken from a frozen copy; null: it could */
  freezeObstacle: string | null;
};

/** How the memory of the trial's branch is taken: from the VMM itself, or from a frozen copy of it */
type TakenFrom = "source" | "frozen";

/** Throws the failure, with the end of the console and of the VMM's log. A failure of the frozen copy alone is a result */
export async function tryForking(home: Home, opts: TrialOptions): Promise<TrialResult> {
  await using cleanup = new AsyncDisposableStack();
  const dir = await makeRunDir(home.run);
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  const place = { dir, key: randomBytes(16) };
  const state = await tried(place, opts, async (trial, bounded) => {
    const agent = await trial.boot();
    return bounded(async () => trial.save(agent));
  });
  const branch = async (takenFrom: TakenFrom): Promise<void> =>
    tried(place, opts, async (trial, bounded) => bounded(async () => trial.fork(state, takenFrom)));
  await branch("source");
  if (opts.confinement.kind === "none") return { freezeObstacle: `VMMs are not confined: ${opts.confinement.reason}` };
  try {
    await branch("frozen");
    return { freezeObstacle: null };
  } catch (error) {
    opts.signal?.throwIfAborted();
    return { freezeObstacle: messageOf(error) };
  }
}

/** What the parts of a trial have in common: a folder, and the key of the guest's agent */
type Place = { dir: string; key: Buffer };

type Bounded = <V>(work: () => Promise<V>) => Promise<V>;

/** Runs a part of the trial with a warden of its own, which ends what is left of it */
async function tried<V>(place: Place, opts: TrialOptions, part: (trial: Trial, bounded: Bounded) => Promise<V>): Promise<V> {
  await using warden = await Warden.start({ binary: opts.warden });
  const trial = new Trial(place, opts, warden);
  const { withinMs, signal } = opts;
  const late = (): ForkdError => new ForkdError("FORK_FAILED", `The guest booted, and ${trial.step} did not end within ${withinMs} ms.`);
  try {
    return await part(trial, async (work) => within(work(), withinMs, signal, late));
  } catch (error) {
    signal?.throwIfAborted();
    throw new ForkdError("FORK_FAILED", `${messageOf(error)}${await trial.lastWords()}`, { cause: error });
  } finally {
    await trial.end();
  }
}

class Trial {
  step = "the boot";
  readonly #dir: string;
  readonly #opts: TrialOptions;
  readonly #warden: Warden;
  readonly #engine: Engine;
  readonly #shape: MachineShape;
  /** of the booted guest, and so of all its children */
  readonly #key: Buffer;
  readonly #agents: AgentConnection[] = [];
  /** the current step and its folder */
  #current: { vm: Vm; dir: string } | undefined;

  constructor({ dir, key }: Place, opts: TrialOptions, warden: Warden) {
    this.#dir = dir;
    this.#key = key;
    this.#opts = opts;
    this.#warden = warden;
    const { engine, confinement } = opts;
    const { accelerator } = opts.shape;
    this.#engine = engine.start({
      accelerator: { accelerator, reason: "it is tried", freezeObstacle: null },
      confinement,
      warden: async () => warden,
    });
    this.#shape = { ...engine.newMachine, ...opts.shape, vcpus: 1, memoryMiB: MEMORY_MIB };
  }

  async boot(): Promise<AgentConnection> {
    const { guestKernel } = this.#opts;
    const dir = await this.#folder("p");
    const vm = await this.#engine.boot({
      shape: this.#shape,
      dir,
      rootfs: null,
      memory: this.#memory,
      disk: null,
      guestKernel: guestKernel.vmlinuz,
      initrd: guestKernel.initrd,
      commandLine: `${this.#engine.commandLine(this.#shape.accelerator, "trial")} forkd.key=${this.#key.toString("hex")}`,
    });
    return this.#meet(vm, dir);
  }

  /** Freezes the booted guest, and returns its device state */
  async save(parent: AgentConnection): Promise<string> {
    this.step = "the freeze";
    parent.hold();
    return this.#stop("state-1");
  }

  /** From the frozen guest to a grandchild with the child's page */
  async fork(deviceState: string, takenFrom: TakenFrom): Promise<void> {
    const { signal } = this.#opts;
    this.step = "the fork";
    const child = await this.#restore(`c-${takenFrom}`, { memory: this.#memory, deviceState, freezable: takenFrom === "frozen" });
    const page = randomBytes(PAGE_BYTES);
    await new GuestFiles(() => child).write(PAGE_PATH, page, { signal });
    this.step = "the branch";
    const branch = takenFrom === "frozen" ? await this.#branchFrozen(child) : await this.#branch(child);
    this.step = "the fork of the branch";
    const grandchild = await this.#restore(`g-${takenFrom}`, branch);
    const found = await new GuestFiles(() => grandchild).read(PAGE_PATH, { signal });
    if (!found.equals(page)) throw new Error("a page that was written before a branch differs in its fork");
  }

  /** Ends the running VM */
  async end(): Promise<void> {
    for (const agent of this.#agents.splice(0)) agent.close();
    await this.#current?.vm.kill();
  }

  /** The end of a booting guest's console, and of its VMM's log */
  async lastWords(): Promise<string> {
    if (!this.#current) return "";
    const { vm } = this.#current;
    const [console, log] = await Promise.all([tailOf(vm.console), vm.lastLog()]);
    return said("Its console ended with", console) + said(`${this.#opts.engine.title} said`, log);
  }

  get #memory(): string {
    return join(this.#dir, "memory.ram");
  }

  async #folder(name: string): Promise<string> {
    const dir = join(this.#dir, name);
    await mkdir(dir, { mode: 0o700 });
    return dir;
  }

  #connect(vm: Vm): AgentConnection {
    const agent = new AgentConnection(vm.agentSocket);
    this.#agents.push(agent);
    return agent;
  }

  async #meet(vm: Vm, dir: string, agent = this.#connect(vm)): Promise<AgentConnection> {
    this.#current = { vm, dir };
    agent.attach(this.#key);
    const ended = vm.exited.then((exit): never => {
      throw new Error(`${this.#opts.engine.title} ended (${exit.failure ?? exit.signal ?? `exit code ${exit.code}`}).`);
    });
    ended.catch(() => undefined); // the race may be over
    try {
      await Promise.race([agent.hello(this.#opts.withinMs, this.#opts.signal), ended]);
    } catch (error) {
      // the channel of an ending VMM closes before its exit status is known
      if (!(error instanceof ForkdError) || error.code !== "AGENT_LOST") throw error;
      await within(ended, this.#opts.withinMs, this.#opts.signal, () => error);
    }
    return agent;
  }

  async #restore(name: string, from: Pick<RestoreSpec, "memory" | "deviceState" | "freezable">): Promise<AgentConnection> {
    const dir = await this.#folder(name);
    const vm = await this.#engine.restore({ shape: this.#shape, dir, rootfs: null, disk: null, start: "hold", ...from });
    this.#current = { vm, dir };
    const agent = this.#connect(vm);
    await vm.loaded();
    await vm.resume();
    return this.#meet(vm, dir, agent);
  }

  async #stop(name: string): Promise<string> {
    const { vm } = this.#running;
    const state = join(this.#dir, name);
    await vm.pause();
    await vm.saveDeviceState();
    await vm.takeDeviceState(state);
    return state;
  }

  /** Saves memory and device state of the child, and ends it */
  async #branch(child: AgentConnection): Promise<Pick<RestoreSpec, "memory" | "deviceState">> {
    const { vm } = this.#running;
    const delta = join(this.#dir, "memory.delta");
    const capture = await this.#warden.captureBegin({
      pid: vm.pid,
      ramPath: this.#memory,
      ramBytes: MEMORY_MIB * MIB,
      deltaPath: delta,
    });
    child.hold();
    const deviceState = await this.#stop("state-2");
    await capture.finish();
    await capture.commit();
    await this.end();
    const memory = join(this.#dir, "branch.ram");
    await this.#warden.flatten({ base: this.#memory, deltas: [delta], out: memory });
    return { memory, deviceState };
  }

  /** The same from a frozen copy: the child runs on and writes another page before the copy is saved */
  async #branchFrozen(child: AgentConnection): Promise<Pick<RestoreSpec, "memory" | "deviceState">> {
    const { vm } = this.#running;
    const delta = join(this.#dir, "frozen.delta");
    const ram = { path: this.#memory, bytes: MEMORY_MIB * MIB };
    await this.#engine.prepareFreeze(vm, ram);
    const held = child.hold();
    const deviceState = await this.#stop("state-3");
    const copy = await this.#engine.freeze(vm);
    await vm.resume();
    held[Symbol.dispose]();
    await new GuestFiles(() => child).write(PAGE_PATH, randomBytes(PAGE_BYTES), { signal: this.#opts.signal });
    await this.#warden.capture({ pid: copy.pid, ramPath: ram.path, ramBytes: ram.bytes, deltaPath: delta });
    await copy.end();
    await this.end();
    const memory = join(this.#dir, "frozen.ram");
    await this.#warden.flatten({ base: this.#memory, deltas: [delta], out: memory });
    return { memory, deviceState };
  }

  get #running(): { vm: Vm; dir: string } {
    if (!this.#current) throw new ForkdError("INTERNAL", "No VM is being tried.");
    return this.#current;
  }
}

function said(who: string, text: string): string {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  // a kernel panic prints its reason before the stack
  const shown = new Set([...lines.filter((line) => /panic|internal error/i.test(line)).slice(-1), ...lines.slice(-CONSOLE_LINES)]);
  return lines.length === 0 ? "" : ` ${who}: ${[...shown].join(" | ")}`;
}

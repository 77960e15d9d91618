// The disk of one VM: the layers of its snapshot, and above them the VM's own layers in its own folder. The VMM can
// write only to a subfolder with the active layer; frozen layers are moved out of it.

import { link, mkdir, readdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { formatDisk } from "../disk/format.ts";
import { layerBytes, linkLayers, type Layer } from "../disk/layer.ts";
import { writeOverlay } from "../disk/overlay.ts";
import { ForkdError } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { DiskControl, VmDisk } from "../vmm/driver.ts";

/**
 * Names of own layers contain their position in the stack, from which adoption restores the order, and the name by which
 * the VMM knows the layer if that is not its id
 */
const OWN = /^(\d{8})-(dk-[a-z2-7]{16})(?:-as-(dk-[a-z2-7]{16}))?\.(raw|qcow2)$/;
/** Leaves a free position between two layers, for a flattened layer that replaces all below it */
const STEP = 2;

/** `node`: the VMM's name for the layer. In a clone, the copied layer has the name that its original had */
type OwnLayer = Layer & { place: number; node: string };

export class SandboxDisk {
  readonly #dir: string;
  readonly sizeMiB: number;
  /** layers of the snapshot, which exists as long as its sandboxes */
  readonly #base: readonly Layer[];
  /** lowest first; the last one is active */
  #own: OwnLayer[];
  /** created for a freeze whose outcome is not known yet */
  #next: OwnLayer | undefined;

  private constructor(dir: string, sizeMiB: number, base: readonly Layer[], own: OwnLayer[]) {
    this.#dir = dir;
    this.sizeMiB = sizeMiB;
    this.#base = base;
    this.#own = own;
  }

  /** A new empty disk, for a parent */
  static async format(dir: string, sizeMiB: number, signal?: AbortSignal): Promise<SandboxDisk> {
    return make(dir, async () => {
      const layer = ownLayer(reachOf(dir), 0, "raw");
      await formatDisk(layer.path, sizeMiB, signal);
      return new SandboxDisk(dir, sizeMiB, [], [layer]);
    });
  }

  /** A disk above the layers of a snapshot, for a child */
  static async above(dir: string, sizeMiB: number, { layers }: Snapshot): Promise<SandboxDisk> {
    return make(dir, async () => {
      const layer = ownLayer(reachOf(dir), 0, "qcow2");
      await writeOverlay(layer.path, sizeMiB);
      return new SandboxDisk(dir, sizeMiB, layers, [layer]);
    });
  }

  /** The disk of a clone. Its active layer is a copy of the source's, which the engine makes */
  static async copyOf(dir: string, source: SandboxDisk, { layers }: Snapshot): Promise<SandboxDisk> {
    const { format, node } = source.#stack().active;
    return make(dir, async () => {
      const layer = ownLayer(reachOf(dir), 0, format, { node });
      return new SandboxDisk(dir, source.sizeMiB, layers, [layer]);
    });
  }

  /** The disk of a VM that an earlier process started; that process may have ended during a freeze */
  static async found(dir: string, sizeMiB: number, { layers }: Snapshot, control: DiskControl): Promise<SandboxDisk> {
    const [active, known, files] = await Promise.all([control.active(), control.known(), ownLayersIn(dir)]);
    const own: OwnLayer[] = [];
    const place = files.find(({ node }) => node === active)?.place;
    if (place === undefined) throw new ForkdError("VMM_FAILED", `Cannot find the disk layer ${active}, to which the VM writes.`);
    for (const layer of files) {
      const isOpen = known.includes(layer.node);
      if (isOpen && layer.place <= place) {
        own.push(layer);
        continue;
      }
      if (isOpen) await control.drop(layer.node);
      await rm(layer.path);
    }
    return new SandboxDisk(dir, sizeMiB, layers, own);
  }

  get spec(): VmDisk {
    const { below, active } = this.#stack();
    return { sizeMiB: this.sizeMiB, below, active };
  }

  /** Bytes shared with no snapshot */
  async ownBytes(): Promise<number> {
    return (await layerBytes(this.#own.map(({ path }) => path))).ownBytes;
  }

  /** Adds the next layer before the freeze, so that the freeze takes one round trip; settle() removes it again */
  async prepare(control: DiskControl): Promise<void> {
    await this.settle(control);
    // a branch that failed after the freeze has not done it
    if (this.#frozen().some((layer) => !this.#isWithdrawn(layer))) await this.#seal(control);
    this.#next = ownLayer(reachOf(this.#dir), this.#stack().active.place + STEP, "qcow2");
    await writeOverlay(this.#next.path, this.sizeMiB);
    await control.add(this.#next);
  }

  /** The disk of a copy that is made of the VM after the next freeze, and the layer from which the engine makes its active one */
  async forCopy(dir: string): Promise<{ disk: SandboxDisk; next: Layer }> {
    const next = this.#next;
    if (!next) throw new ForkdError("INTERNAL", `The disk in ${this.#dir} is not prepared for a freeze.`);
    const disk = await make(dir, async () => {
      const layer = ownLayer(reachOf(dir), 0, next.format, { node: next.node });
      // what is below is opened already, and belongs to the snapshot that is being made
      return new SandboxDisk(dir, this.sizeMiB, [], [layer]);
    });
    return { disk, next };
  }

  /** Freezes the active layer; the VM must be paused */
  async freeze(control: DiskControl): Promise<void> {
    const next = this.#next;
    if (!next) throw new ForkdError("INTERNAL", `The disk in ${this.#dir} is not prepared for a freeze.`);
    await control.freeze(this.#stack().active.node, next.node);
    this.#push(next);
  }

  /** Resolves a freeze that failed or was not tried: asks the VMM for its active layer and removes the unused one */
  async settle(control: DiskControl): Promise<void> {
    const next = this.#next;
    if (!next) return;
    const [active, known] = await Promise.all([control.active(), control.known()]);
    // a late answer may have completed the freeze
    if (active === next.node) return this.#push(next);
    if (known.includes(next.node)) await control.drop(next.node);
    await rm(next.path, { force: true });
    this.#next = undefined;
  }

  /** Links all frozen layers into a folder */
  async saveFrozen(control: DiskControl, dir: string): Promise<string[]> {
    await this.#seal(control);
    return linkLayers(this.#stack().below, dir);
  }

  /** Links all layers into a folder; the VM must have ended */
  async saveAll(dir: string): Promise<string[]> {
    const { below, active } = this.#stack();
    return linkLayers([...below, active], dir);
  }

  /** Replaces all frozen layers by one layer with the same content */
  async restack(control: DiskControl, flat: Layer): Promise<void> {
    const { active } = this.#stack();
    const old = this.#frozen();
    const layer = ownLayer(reachOf(this.#dir), active.place - 1, flat.format, { id: flat.id });
    await link(flat.path, layer.path);
    try {
      await control.restack({ ...active, id: active.node }, layer);
    } catch (error) {
      await rm(layer.path);
      throw error;
    }
    this.#own = [layer, active];
    for (const { node, path } of old.toReversed()) {
      await control.drop(node);
      await rm(path);
    }
    await this.#withdraw();
  }

  /** Removes the layers; the VM must have ended */
  async remove(): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
  }

  #push(next: OwnLayer): void {
    if (this.#next !== next) return;
    this.#own.push(next);
    this.#next = undefined;
  }

  async #seal(control: DiskControl): Promise<void> {
    await control.seal(this.#stack().active);
    await this.#withdraw();
  }

  /** Moves frozen layers out of the folder that the VMM can write; the VMM has them open and needs no path */
  async #withdraw(): Promise<void> {
    for (const [at, layer] of this.#frozen().entries()) {
      if (this.#isWithdrawn(layer)) continue;
      const path = join(this.#dir, basename(layer.path));
      await rename(layer.path, path);
      this.#own[at] = { ...layer, path };
    }
  }

  #frozen(): OwnLayer[] {
    return this.#own.slice(0, -1);
  }

  #isWithdrawn({ path }: Layer): boolean {
    return dirname(path) === this.#dir;
  }

  /** The disk starts at the uppermost raw layer, which is complete: layers below it are not needed */
  #stack(): { below: Layer[]; active: OwnLayer } {
    const active = this.#own.at(-1);
    if (!active) throw new ForkdError("INTERNAL", `The disk in ${this.#dir} has no layers.`);
    const all: Layer[] = [...this.#base, ...this.#frozen()];
    const lowest = all.findLastIndex(({ format }) => format === "raw");
    return { below: all.slice(Math.max(0, lowest)), active };
  }
}

async function make(dir: string, fill: () => Promise<SandboxDisk>): Promise<SandboxDisk> {
  await mkdir(dir, { mode: 0o700 });
  try {
    await mkdir(reachOf(dir), { mode: 0o700 });
    return await fill();
  } catch (error) {
    await rm(dir, { recursive: true, force: true });
    throw error;
  }
}

/** The subfolder that the VMM can write */
function reachOf(dir: string): string {
  return join(dir, "vmm");
}

function ownLayer(dir: string, place: number, format: Layer["format"], opts: { id?: string; node?: string | undefined } = {}): OwnLayer {
  const { id = newId("dk"), node = id } = opts;
  const name = `${String(place).padStart(8, "0")}-${id}${node === id ? "" : `-as-${node}`}.${format}`;
  return { id, node, format, place, path: join(dir, name) };
}

/** Own layers, frozen or active */
async function ownLayersIn(dir: string): Promise<OwnLayer[]> {
  const found = await Promise.all([dir, reachOf(dir)].map(layersOf));
  return found.flat().toSorted((a, b) => a.place - b.place);
}

async function layersOf(dir: string): Promise<OwnLayer[]> {
  return (await readdir(dir)).flatMap((name) => {
    const [, place, id, node, format] = OWN.exec(name) ?? [];
    return place && id && format ? [ownLayer(dir, Number(place), format as Layer["format"], { id, node })] : [];
  });
}

// The disk of one VM: the layers of its snapshot, and above them its own, which lie in a folder of its own. The one that takes the writes
// is in a folder inside it, which is all that a VMM can write: what is frozen is taken out of its reach.

import { link, mkdir, readdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { formatDisk } from "../disk/format.ts";
import { layerBytes, linkLayers, type Layer } from "../disk/layer.ts";
import { writeOverlay } from "../disk/overlay.ts";
import { ForkdError } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { DiskControl, VmDisk } from "../vmm/driver.ts";

/** Own layers carry their place in the stack: whoever finds them can tell the order */
const OWN = /^(\d{8})-(dk-[a-z2-7]{16})\.(raw|qcow2)$/;
/** Leaves a place between two layers for one that stands for all below it */
const STEP = 2;

type OwnLayer = Layer & { place: number };

export class SandboxDisk {
  readonly #dir: string;
  readonly sizeMiB: number;
  /** of the snapshot, which stays as long as its sandboxes do */
  readonly #base: readonly Layer[];
  /** lowest first; the last one takes the writes */
  #own: OwnLayer[];
  /** made for a freeze whose outcome has not been looked at yet */
  #next: OwnLayer | undefined;

  private constructor(dir: string, sizeMiB: number, base: readonly Layer[], own: OwnLayer[]) {
    this.#dir = dir;
    this.sizeMiB = sizeMiB;
    this.#base = base;
    this.#own = own;
  }

  /** An empty one, for a parent */
  static async format(dir: string, sizeMiB: number, signal?: AbortSignal): Promise<SandboxDisk> {
    return make(dir, async () => {
      const layer = ownLayer(reachOf(dir), 0, "raw");
      await formatDisk(layer.path, sizeMiB, signal);
      return new SandboxDisk(dir, sizeMiB, [], [layer]);
    });
  }

  /** What a child of a snapshot begins with */
  static async above(dir: string, sizeMiB: number, { layers }: Snapshot): Promise<SandboxDisk> {
    return make(dir, async () => {
      const layer = ownLayer(reachOf(dir), 0, "qcow2");
      await writeOverlay(layer.path, sizeMiB);
      return new SandboxDisk(dir, sizeMiB, layers, [layer]);
    });
  }

  /** That of a VM which an earlier process started, and which may have been in the middle of a freeze */
  static async found(dir: string, sizeMiB: number, { layers }: Snapshot, control: DiskControl): Promise<SandboxDisk> {
    const [active, known, files] = await Promise.all([control.active(), control.known(), ownLayersIn(dir)]);
    const own: OwnLayer[] = [];
    const place = files.find(({ id }) => id === active)?.place;
    if (place === undefined) throw new ForkdError("VMM_FAILED", `Cannot find the disk layer ${active}, to which the VM writes.`);
    for (const layer of files) {
      const isOpen = known.includes(layer.id);
      if (isOpen && layer.place <= place) {
        own.push(layer);
        continue;
      }
      if (isOpen) await control.drop(layer.id);
      await rm(layer.path);
    }
    return new SandboxDisk(dir, sizeMiB, layers, own);
  }

  get spec(): VmDisk {
    const { below, active } = this.#stack();
    return { sizeMiB: this.sizeMiB, below, active };
  }

  /** What nobody else has of it */
  async ownBytes(): Promise<number> {
    return (await layerBytes(this.#own.map(({ path }) => path))).ownBytes;
  }

  /** Makes the layer that will take the writes after a freeze, so that the freeze is one round trip; settle() takes it back */
  async prepare(control: DiskControl): Promise<void> {
    await this.settle(control);
    this.#next = ownLayer(reachOf(this.#dir), this.#stack().active.place + STEP, "qcow2");
    await writeOverlay(this.#next.path, this.sizeMiB);
    await control.add(this.#next);
  }

  /** While the VM is paused: what it has written until now changes no more */
  async freeze(control: DiskControl): Promise<void> {
    const next = this.#next;
    if (!next) throw new ForkdError("INTERNAL", `The disk in ${this.#dir} is not prepared for a freeze.`);
    await control.freeze(this.#stack().active.id, next.id);
    this.#push(next);
  }

  /** After a freeze that failed, or was never tried: asks which layer takes the writes, and removes the one that was made for nothing */
  async settle(control: DiskControl): Promise<void> {
    const next = this.#next;
    if (!next) return;
    const [active, known] = await Promise.all([control.active(), control.known()]);
    // a freeze that came late may have been heard of meanwhile
    if (active === next.id) return this.#push(next);
    if (known.includes(next.id)) await control.drop(next.id);
    await rm(next.path, { force: true });
    this.#next = undefined;
  }

  /** Gives a folder all layers that are frozen */
  async saveFrozen(dir: string): Promise<string[]> {
    await this.#withdraw();
    return linkLayers(this.#stack().below, dir);
  }

  /** Gives a folder all layers, of a VM that has ended */
  async saveAll(dir: string): Promise<string[]> {
    const { below, active } = this.#stack();
    return linkLayers([...below, active], dir);
  }

  /** Puts a layer that holds the same in place of all frozen ones */
  async restack(control: DiskControl, flat: Layer): Promise<void> {
    const { active } = this.#stack();
    const old = this.#own.slice(0, -1);
    const layer = ownLayer(reachOf(this.#dir), active.place - 1, flat.format, flat.id);
    await link(flat.path, layer.path);
    try {
      await control.restack(active, layer);
    } catch (error) {
      await rm(layer.path);
      throw error;
    }
    this.#own = [layer, active];
    for (const { id, path } of old.toReversed()) {
      await control.drop(id);
      await rm(path);
    }
    await this.#withdraw();
  }

  /** Its VM has ended */
  async remove(): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
  }

  #push(next: OwnLayer): void {
    if (this.#next !== next) return;
    this.#own.push(next);
    this.#next = undefined;
  }

  /** Takes what is frozen out of the VMM's reach: it has these files open, and needs no path to them */
  async #withdraw(): Promise<void> {
    for (const [at, layer] of this.#own.slice(0, -1).entries()) {
      if (dirname(layer.path) === this.#dir) continue;
      const path = join(this.#dir, basename(layer.path));
      await rename(layer.path, path);
      this.#own[at] = { ...layer, path };
    }
  }

  /** The whole disk begins with the uppermost raw layer: below it there is nothing that it does not hold */
  #stack(): { below: Layer[]; active: OwnLayer } {
    const active = this.#own.at(-1);
    if (!active) throw new ForkdError("INTERNAL", `The disk in ${this.#dir} has no layers.`);
    const all: Layer[] = [...this.#base, ...this.#own.slice(0, -1)];
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

/** The part of its folder that the VMM can write */
function reachOf(dir: string): string {
  return join(dir, "vmm");
}

function ownLayer(dir: string, place: number, format: Layer["format"], id = newId("dk")): OwnLayer {
  return { id, format, place, path: join(dir, `${String(place).padStart(8, "0")}-${id}.${format}`) };
}

/** Frozen or not */
async function ownLayersIn(dir: string): Promise<OwnLayer[]> {
  const found = await Promise.all([dir, reachOf(dir)].map(layersOf));
  return found.flat().toSorted((a, b) => a.place - b.place);
}

async function layersOf(dir: string): Promise<OwnLayer[]> {
  return (await readdir(dir)).flatMap((name) => {
    const [, place, id, format] = OWN.exec(name) ?? [];
    return place && id && format ? [ownLayer(dir, Number(place), format as Layer["format"], id)] : [];
  });
}

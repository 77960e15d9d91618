// What a VMM is shown of the host when it runs in namespaces of its own, as data: everything else is not there for it.

import { dirname } from "node:path";
import { installation } from "../../host/installation.ts";
import type { Confinement } from "../../memory/warden.ts";
import type { BootSpec, MachineShape, RestoreSpec, VmFiles } from "../driver.ts";
import { opensReadOnly } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { ownDir } from "./own-dir.ts";

const MIB = 1024 * 1024;
/** Logs and device state are far shorter, and so is what a layer of a disk has beside its content */
const OWN_FILE_BYTES = 256 * MIB;

type Files = VmFiles & { shape: Pick<MachineShape, "accelerator"> };

/** Of a parent: it writes its memory file, and no other outside its own folder */
export function bootConfinement(spec: BootSpec, qemu: QemuBinary): Confinement {
  const common = commonConfinement(spec, qemu);
  return {
    ...common,
    writable: [...common.writable, spec.memory],
    readable: [...common.readable, spec.guestKernel, spec.initrd],
    maxFileBytes: Math.max(common.maxFileBytes, spec.shape.memoryMiB * MIB),
  };
}

/** Of a child: memory and device state belong to its snapshot, so it only reads them */
export function restoreConfinement(spec: Files & Pick<RestoreSpec, "deviceState">, qemu: QemuBinary): Confinement {
  const common = commonConfinement(spec, qemu);
  const preload = opensReadOnly(qemu.version) ? [] : [installation.readOnlyPreload];
  return { ...common, readable: [...common.readable, spec.memory, spec.deviceState, ...preload] };
}

/** QEMU needs nothing of our environment. One that opens the memory file for writing is made to open it for reading */
export function confinedEnv(memory: string, qemu: QemuBinary): Record<string, string> {
  return opensReadOnly(qemu.version) ? {} : { LD_PRELOAD: installation.readOnlyPreload, FORKD_READ_ONLY: memory };
}

function commonConfinement({ dir, rootfs, disk, shape }: Files, qemu: QemuBinary): Confinement {
  return {
    // with the folder of the active layer: later ones are made in it
    writable: [ownDir(dir), ...(disk === null ? [] : [dirname(disk.active.path)])],
    readable: [...qemu.files, ...(rootfs === null ? [] : [rootfs]), ...(disk?.below ?? []).map(({ path }) => path)],
    devices: shape.accelerator === "kvm" ? ["/dev/kvm"] : [],
    maxFileBytes: OWN_FILE_BYTES + (disk?.sizeMiB ?? 0) * MIB,
  };
}

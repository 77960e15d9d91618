// What a VMM is shown of the host when it runs in namespaces of its own, as data: everything else is not there for it.

import { dirname } from "node:path";
import { installation } from "../../host/installation.ts";
import type { Confinement } from "../../memory/warden.ts";
import type { BootSpec, MachineShape, RestoreSpec, VmFiles } from "../driver.ts";
import { opensReadOnly } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { ownDir } from "./own-dir.ts";

const MIB = 1024 * 1024;
/** Logs and device state are far shorter */
const OWN_FILE_BYTES = 256 * MIB;
/** A layer is as large as its disk, and a little more for its tables */
const LAYER_PER_DISK = 1.1;

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

function commonConfinement(spec: Files, qemu: QemuBinary): Confinement {
  const { disk } = spec;
  const below = disk?.below.map(({ path }) => path) ?? [];
  return {
    // a folder and not a file: the layers that follow come into it while the VM runs
    writable: [ownDir(spec.dir), ...(disk ? [dirname(disk.active.path)] : [])],
    readable: [...qemu.files, ...(spec.rootfs === null ? [] : [spec.rootfs]), ...below],
    devices: spec.shape.accelerator === "kvm" ? ["/dev/kvm"] : [],
    maxFileBytes: OWN_FILE_BYTES + Math.ceil((disk?.sizeMiB ?? 0) * LAYER_PER_DISK) * MIB,
  };
}

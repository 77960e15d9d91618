// The files that a confined VMM sees, as data. No other file of the host is in its mount namespace.

import { dirname } from "node:path";
import { installation } from "../../host/installation.ts";
import type { Confinement } from "../../warden/warden.ts";
import type { BootSpec, CallFilter, MachineShape, RestoreSpec, VmFiles } from "../driver.ts";
import { opensReadOnly } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { ownDir } from "./own-dir.ts";

const MIB = 1024 * 1024;
/** Upper bound for logs, device state and the metadata of a disk layer, which are far shorter */
const OWN_FILE_BYTES = 256 * MIB;
/**
 * Path of the library in the VMM's namespace: LD_PRELOAD splits at spaces and colons, which the installation's path may
 * contain
 */
const PRELOAD_INSIDE = "/forkd/read-only.so";

/**
 * Version whose system calls the warden lists (`allowed.rs`): the list was traced, so another version may need other
 * calls
 */
const LISTED = "7.2";

type Files = VmFiles & { shape: Pick<MachineShape, "accelerator"> };

/** Confinement of a parent: it writes its memory file, and otherwise only in its own folder */
export function bootConfinement(spec: BootSpec, qemu: QemuBinary): Confinement {
  const common = commonConfinement(spec, qemu);
  return {
    ...common,
    writable: [...common.writable, spec.memory],
    readable: [...common.readable, spec.guestKernel, spec.initrd],
    maxFileBytes: Math.max(common.maxFileBytes, spec.shape.memoryMiB * MIB),
  };
}

/** Confinement of a child: memory and device state belong to the snapshot and are read-only */
export function restoreConfinement(spec: Files & Pick<RestoreSpec, "deviceState" | "clonable">, qemu: QemuBinary): Confinement {
  const common = commonConfinement(spec, qemu);
  const placed = opensReadOnly(qemu.version) ? [] : [{ path: installation.readOnlyPreload, at: PRELOAD_INSIDE }];
  const readable = [...common.readable, spec.memory, spec.deviceState];
  // A clone shares the mount namespace of its zygote, so nothing is writable by path: each writes through its own
  // descriptors.
  if (spec.clonable) return { ...common, placed, readable: [...readable, ...common.writable], writable: [] };
  return { ...common, placed, readable };
}

/**
 * Environment of a confined QEMU. A version that opens the memory file for writing gets a library that opens it
 * read-only
 */
export function confinedEnv(memory: string, qemu: QemuBinary): Record<string, string> {
  return opensReadOnly(qemu.version) ? {} : { LD_PRELOAD: PRELOAD_INSIDE, FORKD_READ_ONLY: memory };
}

/** The allow list for a known version, else a deny list of calls that are useful to an attacker */
export function callFilter(version: string): CallFilter {
  if (version === LISTED || version.startsWith(`${LISTED}.`)) return { filter: "listed", reason: null };
  return { filter: "deny", reason: `it is not known which QEMU ${version} needs` };
}

function commonConfinement({ dir, rootfs, disk, shape }: Files, qemu: QemuBinary): Confinement {
  return {
    // the folder of the active layer, because later layers are created in it
    writable: [ownDir(dir), ...(disk === null ? [] : [dirname(disk.active.path)])],
    readable: [...qemu.files, ...(rootfs === null ? [] : [rootfs]), ...(disk?.below ?? []).map(({ path }) => path)],
    devices: shape.accelerator === "kvm" ? ["/dev/kvm"] : [],
    maxFileBytes: OWN_FILE_BYTES + (disk?.sizeMiB ?? 0) * MIB,
  };
}

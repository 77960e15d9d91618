// Finds the kernel modules a guest needs, in the order in which they can be loaded.

import { readFile, readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { gunzip, zstdDecompress } from "node:zlib";
import { ForkdError } from "../errors.ts";
import { decompressXz } from "../archive/xz.ts";

/** Modules for a guest's channel, root file system and network; built in or loaded */
const NEEDED_MODULES = ["virtio_pci", "virtio_console", "virtio_blk", "virtio_net", "squashfs", "overlay"] as const;
/** Optional modules; some kernels do not have them */
const OPTIONAL_MODULES = ["vmgenid", "fuse"] as const;
/** Additional modules for a disk. ext4 requests its checksum module at mount time, so its dependencies do not name it */
const DISK_MODULES = ["crc32c_generic", "ext4"] as const;

/** Ends a signed module, after the signature and 12 bytes whose last 4 are the signature's length */
const SIGNED = Buffer.from("~Module signature appended~\n");

const MODULE_FILE = /\.ko(\.(xz|zst|gz))?$/;

export type KernelModule = { name: string; data: Buffer };

/** In load order. `disk`: additional modules for a disk; null when the kernel has no ext4 */
export type GuestModules = { boot: KernelModule[]; disk: KernelModule[] | null };

/**
 * Reads the needed modules of an unpacked kernel. Packages have no modules.dep (the installation makes it), so each
 * module's own list of dependencies is followed.
 */
export async function collectModules(modulesDir: string, signal?: AbortSignal): Promise<GuestModules> {
  const files = await moduleFiles(modulesDir);
  const builtin = await builtinModules(modulesDir);
  const ordered = new Map<string, KernelModule>();

  const add = async (name: string, neededBy: string): Promise<void> => {
    if (ordered.has(name) || builtin.has(name)) return;
    const file = files.get(name);
    if (file === undefined) {
      throw new ForkdError(
        "GUEST_KERNEL_MISSING",
        `Cannot use the guest kernel in ${modulesDir}: ${neededBy} needs the module ${name}, which is not there.`,
      );
    }
    signal?.throwIfAborted();
    const data = await readModule(file, signal);
    for (const dependency of dependsOf(data)) await add(dependency, name);
    ordered.set(name, { name, data });
  };
  for (const name of NEEDED_MODULES) await add(name, "the guest");
  for (const name of OPTIONAL_MODULES) if (files.has(name)) await add(name, "the guest");
  const boot = [...ordered.values()];
  if (!files.has("ext4") && !builtin.has("ext4")) return { boot, disk: null };
  for (const name of DISK_MODULES) if (files.has(name)) await add(name, "a disk");
  return { boot, disk: [...ordered.values()].slice(boot.length) };
}

/** The kernel hashes a signed module when it loads it, which takes an emulated guest a tenth of a second at each boot */
export function withoutSignature({ name, data }: KernelModule): KernelModule {
  if (!data.subarray(-SIGNED.length).equals(SIGNED)) return { name, data };
  const end = data.length - SIGNED.length - 12;
  return { name, data: data.subarray(0, end - data.readUInt32BE(end + 8)) };
}

/** Dependencies of a module, from its .modinfo section */
function dependsOf(module: Buffer): string[] {
  const info = modinfo(module);
  const field = info.split("\0").find((entry) => entry.startsWith("depends="));
  return (field?.slice("depends=".length) ?? "").split(",").filter(Boolean).map(normalise);
}

function modinfo(elf: Buffer): string {
  if (elf.length < 64 || elf.readUInt32BE(0) !== 0x7f454c46)
    throw new ForkdError("GUEST_KERNEL_MISSING", "A kernel module is not an ELF file.");
  const table = Number(elf.readBigUInt64LE(40));
  const size = elf.readUInt16LE(58);
  const count = elf.readUInt16LE(60);
  const section = (index: number): { name: number; offset: number; size: number } => ({
    name: elf.readUInt32LE(table + index * size),
    offset: Number(elf.readBigUInt64LE(table + index * size + 24)),
    size: Number(elf.readBigUInt64LE(table + index * size + 32)),
  });
  const names = section(elf.readUInt16LE(62)).offset;
  for (let i = 0; i < count; i++) {
    const at = section(i);
    if (elf.subarray(names + at.name, names + at.name + 9).toString("latin1") === ".modinfo\0") {
      return elf.subarray(at.offset, at.offset + at.size).toString("latin1");
    }
  }
  return "";
}

async function moduleFiles(dir: string): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !MODULE_FILE.test(entry.name)) continue;
    files.set(normalise(entry.name.replace(MODULE_FILE, "")), join(entry.parentPath, entry.name));
  }
  return files;
}

async function builtinModules(dir: string): Promise<Set<string>> {
  try {
    const text = await readFile(join(dir, "modules.builtin"), "utf8");
    return new Set(
      text
        .split("\n")
        .filter(Boolean)
        .map((path) => normalise(basename(path).replace(MODULE_FILE, ""))),
    );
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return new Set();
    throw error;
  }
}

async function readModule(path: string, signal?: AbortSignal): Promise<Buffer> {
  const data = await readFile(path);
  if (path.endsWith(".xz")) return decompressXz(data, signal ? { signal } : {});
  if (path.endsWith(".zst")) return promisify(zstdDecompress)(data);
  if (path.endsWith(".gz")) return promisify(gunzip)(data);
  return data;
}

/** The kernel treats '-' and '_' in module names as equal */
function normalise(name: string): string {
  return name.replaceAll("-", "_");
}

// The guest kernel and its initramfs, made once per kernel package and agent, and kept in the store.

import { createHash } from "node:crypto";
import { link, mkdir, readFile, readdir, rename, stat, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { z } from "zod";
import { ForkdError, messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import type { Progress } from "../util/progress.ts";
import { syncPath, syncTree } from "../util/sync-path.ts";
import { packInitramfs } from "./initramfs.ts";
import type { InitramfsEntry } from "./initramfs.ts";
import { chooseKernelPackage, fetchKernelPackage } from "./kernel-package.ts";
import { collectModules, withoutSignature } from "./kernel-modules.ts";
import type { GuestModules, KernelModule } from "./kernel-modules.ts";
import { PLATFORM } from "../host/platform.ts";
import { withStaging } from "../host/staging.ts";
import { extractVmlinux, isKernelImage, kernelRelease } from "./vmlinux.ts";

/** Increased when the same inputs would give a different initramfs */
const FORMAT = 4;
const EMPTY_DIRS = ["dev", "etc", "kernels", "mnt", "modules", "proc", "run", "sys", "tmp"];

const BaseManifest = z.object({
  version: z.literal(FORMAT),
  release: z.string().min(1),
  /** `vmlinux` is entered directly, `bzImage` unpacks itself in the guest */
  format: z.enum(["vmlinux", "bzImage", "Image"]),
  package: z.string(),
  package_version: z.string(),
  /** file names in load order */
  modules: z.array(z.string()),
  /** modules that a machine with a disk loads in addition; null: this kernel does not support one */
  disk_modules: z.array(z.string()).nullable(),
});
type BaseManifest = z.infer<typeof BaseManifest>;

const KernelManifest = z.object({
  version: z.literal(FORMAT),
  id: z.string().regex(/^[0-9a-f]{64}$/),
  release: z.string().min(1),
  disk_initrd: z.enum(["initrd", "initrd-disk"]).nullable(),
});

export type GuestKernel = {
  /** release, as printed by `uname -r` in the guest */
  release: string;
  /** path for the engine: an ELF vmlinux where the kernel can be entered directly, else the bzImage */
  vmlinuz: string;
  initrd: string;
  /** for a machine with a disk; null: this kernel has no ext4 */
  diskInitrd: string | null;
  /** hash of kernel, modules, agent and warm interpreters */
  id: string;
};

export type GuestKernelOpts = {
  /** a kernel of the user; its modules are in a folder `modules` beside it, else all are built in */
  file?: string | undefined;
  /** path of the forkd-agent binary */
  agent: string;
  /** path of guest/kernels */
  kernelsDir: string;
  /** checks for a newer kernel package */
  refresh?: boolean;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

/** Fast when nothing changed: apt runs only for the first kernel, or on `refresh` */
export async function ensureGuestKernel(home: Home, opts: GuestKernelOpts): Promise<GuestKernel> {
  await mkdir(home.guestKernels, { recursive: true, mode: 0o700 });
  const base = opts.file === undefined ? await packagedBase(home, opts) : await baseFromFile(home, resolve(opts.file), opts);
  const agent = await readAgent(opts.agent);
  const scripts = await readKernelScripts(opts.kernelsDir);
  const id = compositionId(base.key, agent, scripts);
  const dir = join(home.guestKernels, id);
  const made = await readMade(dir, id);
  if (made !== undefined) return made;

  opts.progress?.({ step: "Writing the initramfs" });
  const { release, modules, disk_modules: diskModules } = base.manifest;
  const read = async (names: readonly string[]): Promise<KernelModule[]> =>
    Promise.all(names.map(async (name) => ({ name, data: await readFile(join(base.dir, "modules", name)) })));
  await withStaging(home, async (staging) => {
    const out = join(staging, "out");
    await mkdir(out);
    const write = async (name: string, names: readonly string[]): Promise<void> =>
      writeFile(join(out, name), packInitramfs(initramfsEntries(agent, await read(names), scripts)));
    await write("initrd", modules);
    // a second initramfs: modules for a disk would take memory in every machine
    if (diskModules?.length) await write("initrd-disk", [...modules, ...diskModules]);
    await link(join(base.dir, "kernel"), join(out, "kernel"));
    const disk = diskModules && (diskModules.length > 0 ? "initrd-disk" : "initrd");
    await writeFile(join(out, "manifest.json"), `${JSON.stringify({ version: FORMAT, id, release, disk_initrd: disk })}\n`);
    await publish(out, dir, async () => (await readMade(dir, id)) !== undefined);
  });
  const result = await readMade(dir, id);
  if (result === undefined) throw new ForkdError("GUEST_KERNEL_MISSING", `The guest kernel in ${dir} could not be read back.`);
  return result;
}

/** The files of the initramfs, parents first */
export function initramfsEntries(
  agent: Buffer,
  modules: readonly { name: string; data: Buffer }[],
  scripts: ReadonlyMap<string, Buffer>,
): InitramfsEntry[] {
  const entries: InitramfsEntry[] = EMPTY_DIRS.map((path) => ({ kind: "dir", path, mode: 0o755 }));
  entries.push({ kind: "char", path: "dev/console", mode: 0o600, major: 5, minor: 1 });
  entries.push({ kind: "file", path: "init", mode: 0o755, data: agent });
  for (const module of modules) entries.push({ kind: "file", path: `modules/${module.name}`, mode: 0o644, data: module.data });
  entries.push({
    kind: "file",
    path: "modules/load",
    mode: 0o644,
    data: Buffer.from(modules.map((module) => `${module.name}\n`).join("")),
  });
  const dirs = new Set<string>();
  for (const [path, data] of scripts) {
    for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) dirs.add(path.slice(0, at));
    for (const dir of dirs)
      if (!entries.some((entry) => entry.path === `kernels/${dir}`)) entries.push({ kind: "dir", path: `kernels/${dir}`, mode: 0o755 });
    entries.push({ kind: "file", path: `kernels/${path}`, mode: 0o644, data });
  }
  return entries;
}

type Base = { dir: string; key: string; manifest: BaseManifest };

async function packagedBase(home: Home, opts: GuestKernelOpts): Promise<Base> {
  const pointer = join(home.guestKernels, "current");
  const known = opts.refresh ? undefined : await readBase(home, await readIfThere(pointer));
  if (known !== undefined) return known;

  opts.progress?.({ step: "Looking for the newest guest kernel" });
  const pkg = await chooseKernelPackage(opts.signal);
  const key = hashOf([Buffer.from(JSON.stringify([FORMAT, pkg]))]);
  if ((await readBase(home, key)) === undefined) {
    await withStaging(home, async (staging) => {
      const unpacked = await fetchKernelPackage(pkg, staging, opts);
      const image = await readFile(unpacked.vmlinuz);
      const { boot, disk } = await collectModules(unpacked.modulesDir, opts.signal);
      // Debian's kernel loads modules without a signature; a kernel of the user may be built to refuse them.
      const modules = { boot: boot.map(withoutSignature), disk: disk?.map(withoutSignature) ?? null };
      const manifest = { release: unpacked.release, package: pkg.name, package_version: pkg.version };
      await writeBase(home, staging, key, image, modules, manifest, opts.signal);
    });
  }
  await writeFileAtomic(pointer, key);
  return mustReadBase(home, key);
}

async function baseFromFile(home: Home, file: string, opts: GuestKernelOpts): Promise<Base> {
  let image: Buffer;
  try {
    image = await readFile(file);
  } catch (error) {
    throw new ForkdError("GUEST_KERNEL_MISSING", `Cannot read the guest kernel ${file}: ${messageOf(error)}.`, { cause: error });
  }
  const release = isKernelImage(image) ? kernelRelease(image) : undefined;
  if (release === undefined) {
    throw new ForkdError(
      "GUEST_KERNEL_MISSING",
      `Cannot use ${file} as guest kernel: it is neither a ${PLATFORM.kernel.image} nor an ELF kernel for ${PLATFORM.name}.`,
    );
  }
  const modulesDir = join(dirname(file), "modules");
  const modules = (await isDirectory(modulesDir)) ? await collectModules(modulesDir, opts.signal) : { boot: [], disk: [] };
  const all = [...modules.boot, ...(modules.disk ?? [])].flatMap((module) => [Buffer.from(module.name), module.data]);
  const key = hashOf([Buffer.from(`file:${FORMAT}:${modules.disk?.length}`), image, ...all]);
  const known = await readBase(home, key);
  if (known !== undefined) return known;
  await withStaging(home, (staging) =>
    writeBase(home, staging, key, image, modules, { release, package: "", package_version: "" }, opts.signal),
  );
  return mustReadBase(home, key);
}

async function writeBase(
  home: Home,
  staging: string,
  key: string,
  image: Buffer,
  modules: GuestModules,
  about: { release: string; package: string; package_version: string },
  signal: AbortSignal | undefined,
): Promise<void> {
  const vmlinux = await extractVmlinux(image, signal);
  const out = join(staging, "out");
  await mkdir(join(out, "modules"), { recursive: true });
  await writeFile(join(out, "kernel"), vmlinux ?? image);
  for (const module of [...modules.boot, ...(modules.disk ?? [])]) await writeFile(join(out, "modules", fileOf(module)), module.data);
  const manifest: BaseManifest = {
    version: FORMAT,
    ...about,
    format: vmlinux === undefined ? PLATFORM.kernel.image : "vmlinux",
    modules: modules.boot.map(fileOf),
    disk_modules: modules.disk?.map(fileOf) ?? null,
  };
  await writeFile(join(out, "manifest.json"), `${JSON.stringify(manifest)}\n`);
  signal?.throwIfAborted();
  await publish(out, baseDir(home, key), async () => (await readBase(home, key)) !== undefined);
}

function fileOf(module: KernelModule): string {
  return `${module.name}.ko`;
}

function baseDir(home: Home, key: string): string {
  return join(home.guestKernels, `base-${key.slice(0, 32)}`);
}

async function mustReadBase(home: Home, key: string): Promise<Base> {
  const base = await readBase(home, key);
  if (base === undefined) throw new ForkdError("GUEST_KERNEL_MISSING", `The guest kernel in ${baseDir(home, key)} could not be read back.`);
  return base;
}

async function readBase(home: Home, key: string | undefined): Promise<Base | undefined> {
  if (key === undefined || !/^[0-9a-f]{64}$/.test(key)) return undefined;
  const dir = baseDir(home, key);
  const manifest = await readManifest(dir, BaseManifest);
  return manifest === undefined ? undefined : { dir, key, manifest };
}

async function readMade(dir: string, id: string): Promise<GuestKernel | undefined> {
  const manifest = await readManifest(dir, KernelManifest);
  if (manifest === undefined || manifest.id !== id) return undefined;
  const diskInitrd = manifest.disk_initrd && join(dir, manifest.disk_initrd);
  return { release: manifest.release, vmlinuz: join(dir, "kernel"), initrd: join(dir, "initrd"), diskInitrd, id };
}

/** An invalid manifest counts as missing: everything here can be made again */
async function readManifest<T>(dir: string, schema: z.ZodType<T>): Promise<T | undefined> {
  const text = await readIfThere(join(dir, "manifest.json"));
  if (text === undefined) return undefined;
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof z.ZodError) return undefined;
    throw error;
  }
}

async function publish(from: string, to: string, isGood: () => Promise<boolean>): Promise<void> {
  // Without the sync a power cut can leave empty files, which later starts would use as a guest kernel.
  await syncTree(from);
  try {
    await rename(from, to);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
    // Another process made the same folder meanwhile; it is replaced only if it cannot be read.
    if (await isGood()) return;
    await rename(to, join(dirname(from), "replaced"));
    await rename(from, to);
  }
  await syncPath(dirname(to));
}

async function readAgent(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw new ForkdError("GUEST_KERNEL_MISSING", `Cannot read the guest agent ${path}: ${messageOf(error)}.`, {
      hint: "Build it with 'make setup'.",
      cause: error,
    });
  }
}

async function readKernelScripts(dir: string): Promise<Map<string, Buffer>> {
  const files = await readdir(dir, { recursive: true, withFileTypes: true });
  const paths = files
    .filter((file) => file.isFile() && !file.parentPath.includes("__pycache__"))
    .map((file) => join(file.parentPath, file.name));
  const scripts = new Map<string, Buffer>();
  for (const path of paths.toSorted()) scripts.set(relative(dir, path), await readFile(path));
  return scripts;
}

function compositionId(baseKey: string, agent: Buffer, scripts: ReadonlyMap<string, Buffer>): string {
  const parts = [Buffer.from(baseKey), agent];
  for (const [path, data] of scripts) parts.push(Buffer.from(path), data);
  return hashOf(parts);
}

function hashOf(parts: readonly Buffer[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(`${part.length}:`).update(part);
  return hash.digest("hex");
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

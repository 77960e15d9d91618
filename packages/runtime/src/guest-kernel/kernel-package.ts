// Downloads the distribution's newest kernel package for virtual machines, and unpacks it without installing it.

import { mkdir, readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import { run } from "../host/command.ts";
import { PLATFORM } from "../host/platform.ts";
import type { Progress } from "../util/progress.ts";

const CLOUD_KERNEL = new RegExp(String.raw`^linux-image-(\d+\.\d+\.\d+\S*)-cloud-${PLATFORM.packages}$`);
const VIRTUAL_KERNEL = /^linux-image-(\d+\.\d+\.\d+\S*-generic)$/;
const UPDATE_HINT = "Refresh the package lists: sudo apt-get update";

export type KernelPackage = {
  name: string;
  version: string;
  /** further packages with its modules */
  extra: string[];
};

export type UnpackedKernel = { release: string; vmlinuz: string; modulesDir: string };

/** Debian's cloud kernels, else the dependency of Ubuntu's linux-image-virtual */
export async function chooseKernelPackage(signal?: AbortSignal): Promise<KernelPackage> {
  const names = (await run(["apt-cache", "pkgnames", "linux-image-"], { signal })).stdout.split("\n");
  const cloud = names.filter((name) => CLOUD_KERNEL.test(name)).toSorted((a, b) => compareReleases(b, a));
  for (const name of cloud) {
    const version = await candidateVersion(name, signal);
    if (version !== undefined) return { name, version, extra: [] };
  }
  const generic = names.filter((name) => VIRTUAL_KERNEL.test(name)).toSorted((a, b) => compareReleases(b, a));
  for (const name of generic) {
    const modules = name.replace("linux-image-", "linux-modules-");
    const version = await candidateVersion(name, signal);
    if (version !== undefined && (await candidateVersion(modules, signal)) !== undefined) return { name, version, extra: [modules] };
  }
  throw new ForkdError("GUEST_KERNEL_MISSING", "Cannot find a guest kernel: apt has no kernel package for virtual machines.", {
    hint: `${UPDATE_HINT} (or name a kernel with --guest-kernel or FORKD_GUEST_KERNEL)`,
  });
}

/** Downloads and unpacks into `dir`; works as an ordinary user */
export async function fetchKernelPackage(
  pkg: KernelPackage,
  dir: string,
  opts: { signal?: AbortSignal | undefined; progress?: Progress | undefined },
): Promise<UnpackedKernel> {
  const debs = join(dir, "debs");
  const tree = join(dir, "tree");
  await mkdir(debs);
  await mkdir(tree);
  opts.progress?.({ step: `Downloading ${pkg.name}` });
  // apt's download user cannot write into a private folder; the content is verified against the signed lists either way
  const argv = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", `${pkg.name}=${pkg.version}`, ...pkg.extra];
  try {
    await run(argv, { cwd: debs, signal: opts.signal, timeoutMs: 600_000 });
  } catch (error) {
    if (error instanceof ForkdError && error.code === "HOST_COMMAND_FAILED") {
      throw new ForkdError("GUEST_KERNEL_MISSING", `Cannot download the guest kernel ${pkg.name}: ${error.message}`, {
        hint: UPDATE_HINT,
        cause: error,
      });
    }
    throw error;
  }
  opts.progress?.({ step: `Unpacking ${pkg.name}` });
  for (const deb of await readdir(debs)) await run(["dpkg-deb", "-x", join(debs, deb), tree], { signal: opts.signal });
  return locateKernel(pkg, tree);
}

async function locateKernel(pkg: KernelPackage, tree: string): Promise<UnpackedKernel> {
  const boot = await readdir(join(tree, "boot"));
  const file = boot.find((name) => name.startsWith("vmlinuz-"));
  if (file === undefined) throw new ForkdError("GUEST_KERNEL_MISSING", `Package ${pkg.name} holds no kernel in /boot.`);
  const release = file.slice("vmlinuz-".length);
  for (const lib of ["lib/modules", "usr/lib/modules"]) {
    const modulesDir = join(tree, lib, release);
    if (await isKernelTree(modulesDir)) return { release, vmlinuz: join(tree, "boot", file), modulesDir };
  }
  throw new ForkdError("GUEST_KERNEL_MISSING", `Package ${pkg.name} holds no modules for ${release}.`);
}

async function isKernelTree(dir: string): Promise<boolean> {
  try {
    await readFile(join(dir, "modules.builtin"));
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR") return false;
    throw error;
  }
}

async function candidateVersion(name: string, signal?: AbortSignal): Promise<string | undefined> {
  const { stdout } = await run(["apt-cache", "policy", name], { signal, env: { ...process.env, LC_ALL: "C" } });
  const version = /^ {2}Candidate: (\S+)$/m.exec(stdout)?.[1];
  return version === "(none)" ? undefined : version;
}

/** Orders kernel packages by the numbers in their names */
export function compareReleases(a: string, b: string): number {
  const left = (a.match(/\d+/g) ?? []).map(Number);
  const right = (b.match(/\d+/g) ?? []).map(Number);
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const difference = (left[i] ?? -1) - (right[i] ?? -1);
    if (difference !== 0) return difference;
  }
  return 0;
}

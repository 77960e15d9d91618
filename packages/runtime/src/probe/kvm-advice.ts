// Advice for hosts where KVM cannot be used, from facts about /dev/kvm, the processor and the environment of this process.

import { constants } from "node:fs";
import { access, readFile, stat } from "node:fs/promises";
import { PLATFORM } from "../host/platform.ts";
import { userName } from "../util/user-name.ts";

export const KVM = "/dev/kvm";

const CONTAINER_MARKS = ["/.dockerenv", "/run/.containerenv"];

export type KvmFacts = {
  /** "open": this user may use the device */
  device: "open" | "denied" | "missing";
  /** group with read and write access; null: none, or its name is unknown */
  group: string | null;
  gid: number | null;
  user: string;
  isContainer: boolean;
  /** this host is a VM */
  isGuest: boolean;
  /** flag of the processor, vmx (Intel) or svm (AMD); null: no virtualisation, or not reported */
  extension: string | null;
};

export async function lookAtKvm(): Promise<KvmFacts> {
  const [device, cpu, owner, marks] = await Promise.all([
    lookAtDevice(),
    textOf("/proc/cpuinfo"),
    ownerOf(),
    Promise.all(CONTAINER_MARKS.map(async (path) => isThere(path))),
  ]);
  const flags = new Set(/^flags\s*:(.*)$/m.exec(cpu)?.[1]?.trim().split(/\s+/));
  return {
    device,
    ...owner,
    user: userName(),
    isContainer: marks.includes(true) || Boolean(process.env["container"]) || Boolean(process.env["KUBERNETES_SERVICE_HOST"]),
    isGuest: flags.has("hypervisor"),
    extension: Object.keys(PLATFORM.kvmModules).find((flag) => flags.has(flag)) ?? null,
  };
}

/** Why the device cannot be used; undefined when a trial makes sense */
export function kvmRefusal({ device }: Pick<KvmFacts, "device">): string | undefined {
  if (device === "missing") return `there is no ${KVM}`;
  return device === "denied" ? `this user may not open ${KVM}` : undefined;
}

export function kvmAdvice(facts: KvmFacts): string {
  if (facts.device === "open")
    return facts.isGuest
      ? "This host is itself a VM: its host must offer nested virtualisation completely. 'accelerator = kvm' uses KVM without the trial."
      : "Another hypervisor may hold the processor (VirtualBox, VMware): stop it. 'accelerator = kvm' uses KVM without the trial.";
  if (facts.isContainer)
    return `Start the container with --device ${KVM} --group-add ${facts.gid ?? `"$(stat -c %g ${KVM})"`}; in Kubernetes a device plugin gives ${KVM}.`;
  return facts.device === "denied" ? accessAdvice(facts) : deviceAdvice(facts);
}

function accessAdvice({ group, user }: KvmFacts): string {
  if (group === null) return `sudo groupadd --force --system kvm && sudo chown root:kvm ${KVM} && sudo chmod 660 ${KVM}`;
  return `sudo usermod -aG ${group} ${user}, then log in again`;
}

function deviceAdvice({ extension, isGuest }: KvmFacts): string {
  const firmware = "switch on virtualisation (VT-x, AMD-V or SVM) in the firmware";
  if (extension !== null) {
    return `sudo modprobe ${PLATFORM.kvmModules[extension] ?? "kvm"}; if that is refused, ${firmware}, and see 'dmesg | grep -i kvm'.`;
  }
  if (isGuest) return "This host is itself a VM: switch on nested virtualisation where it is defined, then start it again.";
  return `${firmware.charAt(0).toUpperCase()}${firmware.slice(1)}, then 'sudo modprobe kvm_intel' or 'sudo modprobe kvm_amd'.`;
}

async function lookAtDevice(): Promise<KvmFacts["device"]> {
  try {
    await access(KVM, constants.R_OK | constants.W_OK);
    return "open";
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "ENOENT" || code === "ENODEV" || code === "ENXIO" ? "missing" : "denied";
  }
}

async function ownerOf(): Promise<Pick<KvmFacts, "group" | "gid">> {
  try {
    const { gid, mode } = await stat(KVM);
    if (gid === 0 || (mode & 0o060) !== 0o060) return { group: null, gid: null };
    const line = (await textOf("/etc/group")).split("\n").find((entry) => entry.split(":")[2] === String(gid));
    return { group: line?.split(":")[0] ?? String(gid), gid };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return { group: null, gid: null };
  }
}

async function isThere(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false;
  }
}

async function textOf(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}

// Whether KVM really runs our guest: found by booting it, never by looking for the device file.

import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { access, mkdir, readFile, rm } from "node:fs/promises";
import { hostname, release } from "node:os";
import { join } from "node:path";
import * as z from "zod";
import { messageOf } from "../../errors.ts";
import { AgentConnection } from "../../guest/connection.ts";
import type { Home } from "../../home.ts";
import { makeRunDir } from "../../host/run-dir.ts";
import type { GuestKernel } from "../../image/guest-kernel.ts";
import { Warden } from "../../memory/warden.ts";
import { writeFileAtomic } from "../../util/atomic-file.ts";
import type { ConfinementState } from "../driver.ts";
import { BASELINE_CPU, MACHINE } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { QemuEngine } from "./engine.ts";

const KVM = "/dev/kvm";
const DEADLINE_MS = 10_000;

export type AcceleratorChoice = { accelerator: "kvm" | "tcg"; reason: string };

const cached = z.strictObject({ key: z.string(), accelerator: z.enum(["kvm", "tcg"]), reason: z.string() });

export type ProbeOptions = {
  qemu: QemuBinary;
  guestKernel: GuestKernel;
  warden: string;
  /** the guest is tried as guests will run */
  confinement: ConfinementState;
  signal?: AbortSignal | undefined;
};

/** KVM where a guest boots with it, else QEMU's translator; remembered per host, host kernel, QEMU, user and confinement */
export async function probeAccelerator(home: Home, opts: ProbeOptions): Promise<AcceleratorChoice> {
  const denied = await kvmDenied();
  if (denied) return { accelerator: "tcg", reason: denied };
  const key = JSON.stringify([hostname(), release(), opts.qemu, process.getuid?.() ?? 0, opts.guestKernel.id]);
  const file = join(home.cache, `accelerator-${opts.confinement.kind}.json`);
  const known = await readCached(file);
  if (known?.key === key) return { accelerator: known.accelerator, reason: known.reason };
  const failure = await tryKvm(home, opts);
  const choice: AcceleratorChoice = failure
    ? { accelerator: "tcg", reason: `${KVM} exists, but a guest does not boot with it: ${failure}` }
    : { accelerator: "kvm", reason: "a guest booted with KVM" };
  await mkdir(home.cache, { recursive: true, mode: 0o700 });
  await writeFileAtomic(file, JSON.stringify({ key, ...choice }));
  return choice;
}

async function kvmDenied(): Promise<string | undefined> {
  try {
    await access(KVM, constants.R_OK | constants.W_OK);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT" ? `there is no ${KVM}` : `this user may not open ${KVM}`;
  }
}

async function readCached(file: string): Promise<z.infer<typeof cached> | undefined> {
  try {
    return cached.safeParse(JSON.parse(await readFile(file, "utf8"))).data;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Boots the guest kernel without a disk; the reason when its agent does not answer in time */
async function tryKvm(home: Home, opts: ProbeOptions): Promise<string | undefined> {
  await using cleanup = new AsyncDisposableStack();
  const dir = await makeRunDir(home.run);
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  const warden = cleanup.use(await Warden.start({ binary: opts.warden }));
  const engine = new QemuEngine({ qemu: opts.qemu, warden: async () => warden, confinement: opts.confinement.kind });
  const key = randomBytes(16);
  const vm = await engine.boot({
    shape: {
      engine: "qemu",
      engineVersion: opts.qemu.version,
      machine: MACHINE,
      cpu: BASELINE_CPU,
      accelerator: "kvm",
      vcpus: 1,
      memoryMiB: 128,
    },
    dir,
    rootfs: null,
    memory: join(dir, "memory.ram"),
    disk: null,
    guestKernel: opts.guestKernel.vmlinuz,
    initrd: opts.guestKernel.initrd,
    commandLine: `console=ttyS0 quiet panic=-1 forkd.key=${key.toString("hex")}`,
  });
  cleanup.defer(async () => vm.kill());
  const agent = new AgentConnection(vm.agentSocket).attach(key);
  cleanup.defer(() => agent.close());
  try {
    await Promise.race([
      agent.hello(DEADLINE_MS, opts.signal),
      vm.exited.then((exit) => {
        throw new Error(`QEMU ended (${exit.signal ?? exit.code}): ${exit.log}`);
      }),
    ]);
    return undefined;
  } catch (error) {
    opts.signal?.throwIfAborted();
    return messageOf(error);
  }
}

// Trial of confinement: starts a confined QEMU without a machine to see whether this host allows it. Takes about 50 ms.

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../../errors.ts";
import { tailOf } from "../../util/tail.ts";
import { within } from "../../util/within.ts";
import { Warden } from "../../warden/warden.ts";
import type { ConfinedTrial } from "../driver.ts";
import { FD, optionValue, privateShare, SANDBOX } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { confinedEnv, restoreConfinement } from "./confinement.ts";
import { ownDir } from "./own-dir.ts";
import { Qmp } from "./qmp.ts";

const DEADLINE_MS = 10_000;

/** Throws ForkdError with the reason */
export async function tryConfined(qemu: QemuBinary, trial: ConfinedTrial): Promise<void> {
  const { dir, memory, deviceState, filter, signal } = trial;
  await using cleanup = new AsyncDisposableStack();
  await mkdir(ownDir(dir), { mode: 0o700 });
  const log = join(dir, "vmm.log");
  const socket = join(dir, "qmp");
  const warden = cleanup.use(await Warden.start({ binary: trial.warden }));
  const vmm = await warden.spawn({
    argv: [qemu.path, ...machinelessArgs(trial, qemu.version)],
    env: { LC_ALL: "C", ...confinedEnv(memory, qemu) },
    cwd: ownDir(dir),
    log,
    files: [{ fd: FD.qmp, path: socket, mode: "listen" }],
    confinement: {
      ...restoreConfinement({ dir, rootfs: null, disk: null, memory, deviceState, shape: { accelerator: "tcg" } }, qemu),
      filter,
    },
  });
  const qmp = new Qmp(socket);
  cleanup.defer(() => qmp.close());
  const ended = vmm.exited.then(async ({ code, signal }): Promise<never> => {
    throw new ForkdError("VMM_FAILED", `QEMU ended (${signal ?? `exit code ${code}`}) in namespaces of its own: ${await tailOf(log)}`);
  });
  ended.catch(() => undefined); // the race below may end with the answer
  const late = (): ForkdError => new ForkdError("VMM_FAILED", `QEMU did not answer within ${DEADLINE_MS} ms in namespaces of its own.`);
  try {
    await within(Promise.race([qmp.ready(), ended]), DEADLINE_MS, signal, late);
  } catch (error) {
    // the channel closes before the exit is known, and the exit has the reason
    if (error instanceof ForkdError && error.code === "VMM_EXITED") await within(ended, DEADLINE_MS, signal, late);
    throw error;
  }
}

function machinelessArgs({ memory, memoryBytes }: ConfinedTrial, version: string): string[] {
  const share = privateShare(version);
  const backend = `memory-backend-file,id=ram0,size=${memoryBytes},mem-path=${optionValue(memory)},share=${share}`;
  const channel = `socket,id=qmp,fd=${FD.qmp},server=on,wait=off`;
  const options = {
    machine: "none",
    display: "none",
    sandbox: SANDBOX,
    object: backend,
    chardev: channel,
    mon: "chardev=qmp,mode=control",
  };
  return ["-nodefaults", "-no-user-config", ...Object.entries(options).flatMap(([name, value]) => [`-${name}`, value])];
}

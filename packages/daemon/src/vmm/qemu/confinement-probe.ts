// Whether this host lets VMMs run in namespaces of their own: found by starting one so, never by looking at settings.

import { mkdir, realpath, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../../errors.ts";
import { within } from "../../guest/connection.ts";
import type { Home } from "../../home.ts";
import { makeRunDir } from "../../host/run-dir.ts";
import { withStaging } from "../../host/staging.ts";
import { Warden } from "../../memory/warden.ts";
import { tailOf } from "../../util/tail.ts";
import type { ConfinementState } from "../driver.ts";
import { FD, optionValue, privateShare, SANDBOX } from "./args.ts";
import type { QemuBinary } from "./binary.ts";
import { confinedEnv, restoreConfinement } from "./confinement.ts";
import { ownDir } from "./own-dir.ts";
import { Qmp } from "./qmp.ts";

const SYSTEM = /^\/(usr|bin|sbin|lib\w*)(\/|$)/;
const MEMORY_BYTES = 1024 * 1024;
const DEADLINE_MS = 10_000;

export type ConfinementProbeOptions = { qemu: QemuBinary; warden: string; signal?: AbortSignal | undefined };

/** A QEMU without a machine is started as a child of a snapshot would be, with files of the store; it takes some 50 ms */
export async function probeConfinement(home: Home, opts: ConfinementProbeOptions): Promise<ConfinementState> {
  const seen = await inSystem(home);
  if (seen !== undefined) return { kind: "none", reason: `${seen} lies in a folder of the system, which every VMM sees` };
  try {
    await withStaging(home, async (staging) => tryConfined(home, staging, opts));
    return { kind: "namespaces", reason: null };
  } catch (error) {
    opts.signal?.throwIfAborted();
    if (!(error instanceof ForkdError)) throw error;
    return { kind: "none", reason: error.message };
  }
}

/** A folder of ours that could not be hidden */
async function inSystem(home: Home): Promise<string | undefined> {
  for (const dir of [home.root, home.run]) if (SYSTEM.test(await realpath(dir))) return dir;
  return undefined;
}

async function tryConfined(home: Home, staging: string, opts: ConfinementProbeOptions): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const dir = await makeRunDir(home.run);
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  await mkdir(ownDir(dir), { mode: 0o700 });
  const memory = join(staging, "memory.ram");
  const deviceState = join(staging, "device.state");
  for (const file of [memory, deviceState]) await writeFile(file, "", { mode: 0o600 });
  await truncate(memory, MEMORY_BYTES);
  const log = join(dir, "vmm.log");
  const socket = join(dir, "qmp");
  const warden = cleanup.use(await Warden.start({ binary: opts.warden }));
  const vmm = await warden.spawn({
    argv: [opts.qemu.path, ...machinelessArgs(memory, opts.qemu.version)],
    env: { LC_ALL: "C", ...confinedEnv(memory, opts.qemu) },
    cwd: ownDir(dir),
    log,
    files: [{ fd: FD.qmp, path: socket, mode: "listen" }],
    confinement: restoreConfinement({ dir, rootfs: null, disk: null, memory, deviceState, shape: { accelerator: "tcg" } }, opts.qemu),
  });
  const qmp = new Qmp(socket);
  cleanup.defer(() => qmp.close());
  const ended = vmm.exited.then(async ({ code, signal }): Promise<never> => {
    throw new ForkdError("VMM_FAILED", `QEMU ended (${signal ?? `exit code ${code}`}) in namespaces of its own: ${await tailOf(log)}`);
  });
  ended.catch(() => undefined); // the race below may be won
  const late = (): ForkdError => new ForkdError("VMM_FAILED", `QEMU did not answer within ${DEADLINE_MS} ms in namespaces of its own.`);
  try {
    await within(Promise.race([qmp.ready(), ended]), DEADLINE_MS, opts.signal, late);
  } catch (error) {
    // its channel closes before its end is known, and the end says more
    if (error instanceof ForkdError && error.code === "VMM_EXITED") await within(ended, DEADLINE_MS, opts.signal, late);
    throw error;
  }
}

function machinelessArgs(memory: string, version: string): string[] {
  const share = privateShare(version);
  const backend = `memory-backend-file,id=ram0,size=${MEMORY_BYTES},mem-path=${optionValue(memory)},share=${share}`;
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

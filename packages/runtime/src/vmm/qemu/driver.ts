// QEMU as an installed engine: detection, and its properties before VMs run.

import { findProgram } from "../../util/find-program.ts";
import type { CallFilter, ConfinedTrial, CpuChoice, Engine, EngineDriver, EngineLook, EngineOptions, InstalledEngine } from "../driver.ts";
import { findQemu, lookAtQemu, OLDEST, PROGRAM, PROGRAM_PACKAGE, type QemuBinary } from "./binary.ts";
import { qemuCapabilities } from "./capabilities.ts";
import { tryConfined } from "./confined-trial.ts";
import { callFilter } from "./confinement.ts";
import { chooseCpu } from "./cpu-model.ts";
import { describe, newMachine, QemuEngine } from "./engine.ts";
import { DISK_TOOL, DISK_TOOL_PACKAGE } from "./img.ts";
import { compareVersions } from "./version.ts";

const TITLE = "QEMU";

export const qemuDriver: EngineDriver = {
  find: async (signal) => new InstalledQemu(await findQemu(signal)),
  look,
  // argument of -name, see args.ts
  isVmmOf: (argv, dir) =>
    (argv[0] ?? "").includes("qemu-system") && argv.some((arg) => arg.startsWith(`guest=${dir}/`) || arg === `guest=${dir}`),
};

class InstalledQemu implements InstalledEngine {
  readonly name = "qemu";
  readonly title = TITLE;
  readonly version: string;
  readonly description: string;
  readonly fingerprint: QemuBinary;
  readonly calls: CallFilter;
  readonly newMachine: Engine["newMachine"];

  constructor(qemu: QemuBinary) {
    this.version = qemu.version;
    this.description = describe(qemu.version);
    this.fingerprint = qemu;
    this.calls = callFilter(qemu.version);
    this.newMachine = newMachine(qemu.version);
  }

  async bestCpu(signal?: AbortSignal): Promise<CpuChoice> {
    return chooseCpu(undefined, "kvm", await qemuCapabilities(this.fingerprint.path, "kvm", { signal }));
  }

  async tryConfined(trial: ConfinedTrial): Promise<void> {
    await tryConfined(this.fingerprint, trial);
  }

  start(opts: EngineOptions): Engine {
    return new QemuEngine({ qemu: this.fingerprint, ...opts });
  }
}

async function look(signal?: AbortSignal): Promise<EngineLook> {
  const [found, diskTool] = await Promise.all([lookAtQemu(signal), findProgram(DISK_TOOL)]);
  return {
    name: "qemu",
    title: TITLE,
    isFound: typeof found?.version === "string",
    ...stateOf(found),
    packages: PROGRAM_PACKAGE,
    diskTool: { name: DISK_TOOL, path: diskTool, packages: DISK_TOOL_PACKAGE },
  };
}

/** Doctor's report about the QEMU in PATH */
export function stateOf(found: { path: string; version: string | null } | null): Pick<EngineLook, "reason" | "isUsable"> {
  if (!found) return { isUsable: false, reason: `${PROGRAM} is not in PATH.` };
  const { path, version } = found;
  if (version === null) return { isUsable: false, reason: `${path} --version gave no version.` };
  if (compareVersions(version, OLDEST) < 0) return { isUsable: false, reason: `${path} is ${version}; forkd needs ${OLDEST} or newer.` };
  return { isUsable: true, reason: `${version}, ${path}` };
}

// Warns that VMs run without confinement, once per command.

import { printNote } from "../terminal/output.ts";

import type { Controller, SandboxInfo } from "forkd";
import type { Cli } from "../cli.ts";

/** Commands that have warned: tests of recipes and benchmarks fork many times */
const said = new WeakSet<Cli>();

/** Prints nothing when all are confined */
export async function noteUnconfined(cli: Cli, forkd: Controller, sandboxes: readonly Pick<SandboxInfo, "confinement">[]): Promise<void> {
  if (said.has(cli) || !sandboxes.some(({ confinement }) => confinement === "none")) return;
  said.add(cli);
  // the sandboxes exist: a failure of this request must not fail the command
  const status = await forkd.status({ signal: cli.signal }).catch(() => undefined);
  printUnconfined(status?.confinement_reason ?? null);
}

export function printUnconfined(reason: string | null): void {
  const why = reason === null ? "" : `: ${reason.trim().replace(/\.$/, "")}`;
  printNote(`Warning: the VMs are not confined${why}. A VMM that is broken into can do what its user can; 'forkd doctor' says what to do.`);
}

// What this QEMU can emulate on this host: machine types, and CPU models with what they lack here.

import { createInterface } from "node:readline";
import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { startPiped } from "../../host/run.ts";

const WITHIN_MS = 20_000;

const cpus = z.array(
  z.object({ name: z.string(), "unavailable-features": z.array(z.string()).optional(), "migration-safe": z.boolean().optional() }),
);
const machines = z.array(z.object({ name: z.string(), alias: z.string().optional() }));

export type Capabilities = {
  machines: ReadonlySet<string>;
  /** by model, the features that this host does not give it, and whether it is the same on every host */
  cpus: ReadonlyMap<string, { missing: readonly string[]; isPortable: boolean }>;
};

/** Asks a QEMU that has no machine */
export async function qemuCapabilities(qemu: string, accelerator: "kvm" | "tcg", signal?: AbortSignal): Promise<Capabilities> {
  const argv = [qemu, "-machine", "none", "-accel", accelerator, "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"];
  const command = startPiped(argv, { timeoutMs: WITHIN_MS, signal });
  command.stdin.on("error", () => undefined); // one that ended says why below
  for (const execute of ["qmp_capabilities", "query-cpu-definitions", "query-machines", "quit"])
    command.stdin.write(`${JSON.stringify({ execute, id: execute })}\n`);
  const answers = new Map<unknown, unknown>();
  for await (const line of createInterface({ input: command.stdout })) {
    const reply = JSON.parse(line) as { id?: unknown; return?: unknown };
    if (reply.id !== undefined) answers.set(reply.id, reply.return);
  }
  await command.done;
  const [models, types] = [cpus.safeParse(answers.get("query-cpu-definitions")), machines.safeParse(answers.get("query-machines"))];
  if (!models.success || !types.success) throw new ForkdError("HOST_COMMAND_FAILED", `${qemu} does not tell what it can emulate.`);
  return {
    machines: new Set(types.data.flatMap(({ name, alias }) => [name, ...(alias === undefined ? [] : [alias])])),
    cpus: new Map(
      models.data.map((model) => [
        model.name,
        { missing: model["unavailable-features"] ?? [], isPortable: model["migration-safe"] === true },
      ]),
    ),
  };
}

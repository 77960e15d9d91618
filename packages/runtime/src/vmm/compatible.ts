// Compatibility of a snapshot with the engine of this host.

import { ForkdError } from "../errors.ts";
import type { Engine, MachineShape, Refusal } from "./driver.ts";

/** Throws SNAPSHOT_INCOMPATIBLE with the reason */
export function checkCompatible(tag: string, shape: MachineShape, engine: Pick<Engine, "name" | "refusal">): void {
  const refusal = otherEngine(shape, engine) ?? engine.refusal(shape);
  if (refusal) throw new ForkdError("SNAPSHOT_INCOMPATIBLE", `Cannot fork snapshot ${tag} here: ${refusal.why}.`, { hint: refusal.hint });
}

export function otherEngine(shape: Pick<MachineShape, "engine">, { name }: Pick<Engine, "name">): Refusal | undefined {
  if (shape.engine === name) return undefined;
  return { why: `it was made with the engine ${shape.engine}, and this host uses ${name}`, hint: "Make the snapshot again here." };
}

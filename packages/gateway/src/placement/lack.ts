// What a node lacks for a fork.

import type { EngineNeeds, ForkRequest, NodeFacts } from "./facts.ts";

/** "room" and "cordon" pass with time; the others need another node or another request */
export type Lack = { kind: "room" | "cordon" | "engine" | "isolation" | "policy" | "snapshot"; what: string };

/** undefined: the node can take at least one child */
export function lackOf(request: ForkRequest, node: NodeFacts, canFetch: boolean): Lack | undefined {
  const { snapshot, isolation, allowedNodes } = request;
  if (allowedNodes && !allowedNodes.has(node.code)) return { kind: "policy", what: "not allowed for this project" };
  if (node.cordoned) return { kind: "cordon", what: "cordoned" };
  const unfit = engineLack(snapshot.engine, node) ?? isolationLack(snapshot.engine, isolation, node);
  if (unfit) return unfit;
  if (node.places.used >= node.places.max) return { kind: "room", what: "no free place for a sandbox" };
  if (node.memory.freeMiB < snapshot.memoryMiB) return { kind: "room", what: `less than ${snapshot.memoryMiB} MiB of memory free` };
  if (node.holds.has(snapshot.id) || node.code === request.sourceNode)
    return node.disk.freeMiB > 0 ? undefined : { kind: "room", what: "no disk space for another sandbox" };
  if (!canFetch) return { kind: "snapshot", what: "does not have the snapshot, and it cannot be fetched" };
  if (node.fetching.has(snapshot.id)) return undefined;
  const neededMiB = snapshot.base !== null && node.holds.has(snapshot.base) ? snapshot.deltaMiB : snapshot.diskMiB;
  if (node.disk.freeMiB < neededMiB) return { kind: "room", what: `less than ${neededMiB} MiB of disk space for the snapshot` };
  return undefined;
}

/** How many children the node can take, by its last report */
export function roomFor({ snapshot, count }: ForkRequest, { places, memory }: NodeFacts): number {
  return Math.max(0, Math.min(count, places.max - places.used, Math.floor(memory.freeMiB / snapshot.memoryMiB)));
}

function engineLack(needs: EngineNeeds, { engine, accelerator, cpu }: NodeFacts): Lack | undefined {
  const lack = (what: string): Lack => ({ kind: "engine", what });
  if (engine.name !== needs.name) return lack(`has the engine ${engine.name} instead of ${needs.name}`);
  if (needs.exactVersion && engine.version !== needs.version) return lack(`has an engine other than version ${needs.version}`);
  if (isOlder(engine.version, needs.version)) return lack(`has an engine older than version ${needs.version}`);
  if (needs.accelerator === "tcg") return undefined;
  if (accelerator !== "kvm") return lack("has no KVM, with which the snapshot was made");
  if (!needs.cpu || !cpu) return undefined;
  if (cpu.vendor !== needs.cpu.vendor) return lack(`has no processor of ${needs.cpu.vendor}`);
  const missing = needs.cpu.features.find((feature) => !cpu.features.has(feature));
  return missing === undefined ? undefined : lack(`has a processor without ${missing}`);
}

/** A snapshot made without KVM runs emulated everywhere */
function isolationLack(needs: EngineNeeds, isolation: ForkRequest["isolation"], node: NodeFacts): Lack | undefined {
  if (needs.accelerator === "kvm") return undefined;
  if (isolation === "kvm") return { kind: "isolation", what: "would emulate the snapshot, which was made without KVM" };
  return node.allowsEmulation ? undefined : { kind: "isolation", what: "starts no emulated VMs" };
}

/** By major and minor version: patch releases load each other's snapshots */
function isOlder(version: string, than: string): boolean {
  return version !== than && numberOf(version) < numberOf(than);
}

function numberOf(version: string): number {
  const dot = version.indexOf(".");
  return Number.parseInt(version, 10) * 1000 + (dot < 0 ? 0 : Number.parseInt(version.slice(dot + 1), 10));
}

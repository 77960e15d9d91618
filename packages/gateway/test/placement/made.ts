// Nodes and requests for the tests of placement.

import type { ForkRequest, Held, NodeFacts, Random, SnapshotFacts } from "../../src/placement/facts.ts";

/** Repeats the same numbers for a seed */
export function seeded(seed: number): Random {
  let state = (seed * 2654435761 + 1) >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    // the low bits of this generator repeat early
    return (state >>> 8) / 2 ** 24;
  };
}

/** An empty node that fits every request of these tests; `used` of 100 places */
export function node(code: string, given: Partial<NodeFacts> & { used?: number; held?: Held } = {}): NodeFacts {
  const { used = 0, held, ...facts } = given;
  return {
    code,
    memory: { freeMiB: 100_000 - used * 512, totalMiB: 100_000 },
    places: { used, max: 100 },
    disk: { freeMiB: 50_000 },
    accelerator: "kvm",
    allowsEmulation: false,
    engine: { name: "engine", version: "10.0.2" },
    cpu: { vendor: "GenuineIntel", features: new Set(["avx2", "sse4.2"]) },
    cordoned: false,
    holds: new Map(held ? [["snap", held]] : []),
    fetching: new Set(),
    load: 0,
    ...facts,
  };
}

export function request(given: Partial<Omit<ForkRequest, "snapshot">> & { snapshot?: Partial<SnapshotFacts> } = {}): ForkRequest {
  const { snapshot, ...rest } = given;
  return {
    count: 1,
    isolation: "any",
    allowedNodes: null,
    sourceNode: null,
    ...rest,
    snapshot: {
      id: "snap",
      base: null,
      memoryMiB: 512,
      diskMiB: 600,
      deltaMiB: 600,
      inRegistry: true,
      engine: {
        name: "engine",
        version: "8.2.1",
        exactVersion: false,
        accelerator: "kvm",
        cpu: { vendor: "GenuineIntel", features: ["avx2"] },
      },
      ...snapshot,
    },
  };
}

// What placement knows of nodes and of a fork: data that the gateway gathers, and the simulation makes up.

/** A number in [0, 1). Passed in, so that a seed repeats every decision */
export type Random = () => number;

/** How a node holds a snapshot. "warm": with a zygote, a flat image or waiting VMMs; "disk": only stored */
export type Held = "warm" | "disk";

/** One node, as its last report says */
export type NodeFacts = {
  /** part of the ids of its sandboxes */
  code: string;
  /** guest memory that it can still give to sandboxes, of all that it has for them */
  memory: { freeMiB: number; totalMiB: number };
  /** sandboxes it has, of those it may have */
  places: { used: number; max: number };
  /** space for snapshots, without the part that the node keeps free */
  disk: { freeMiB: number };
  accelerator: "kvm" | "tcg";
  /** whether it starts emulated VMs */
  allowsEmulation: boolean;
  engine: { name: string; version: string };
  /** processor, for snapshots made with KVM; null: unknown, and the node itself decides */
  cpu: { vendor: string; features: ReadonlySet<string> } | null;
  cordoned: boolean;
  /** snapshots it holds, by id */
  holds: ReadonlyMap<string, Held>;
  /** ids of snapshots it is receiving */
  fetching: ReadonlySet<string>;
  /** work of its processors as a share of what they can do; more than 1: work waits */
  load: number;
};

/** What the engine of a node must offer to a snapshot */
export type EngineNeeds = {
  name: string;
  /** version that made it; an older one cannot load it */
  version: string;
  /** no other version can load it */
  exactVersion: boolean;
  accelerator: "kvm" | "tcg";
  /** with KVM: its processor; null: not recorded */
  cpu: { vendor: string; features: readonly string[] } | null;
};

export type SnapshotFacts = {
  id: string;
  /** snapshot it is a delta of: a node that holds it fetches only the delta */
  base: string | null;
  /** memory of each child */
  memoryMiB: number;
  /** disk space it needs on a node that holds nothing of it, and on one that holds its base */
  diskMiB: number;
  deltaMiB: number;
  /** a registry has it, so that it can be fetched when no node holds it */
  inRegistry: boolean;
  engine: EngineNeeds;
};

export type ForkRequest = {
  snapshot: SnapshotFacts;
  count: number;
  /** "kvm": children must not be emulated */
  isolation: "kvm" | "any";
  /** codes of the nodes that the project may use; null: all */
  allowedNodes: ReadonlySet<string> | null;
  /** node of the live sandbox that is forked, whose memory is there; null: a fork of a stored snapshot */
  sourceNode: string | null;
};

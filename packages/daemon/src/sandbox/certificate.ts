// What was done and checked to make a fork a machine of its own. Part of every answer that hands out a sandbox.

export type KernelState = {
  /** "pending": it was busy at the branch, so its code may use a generator nobody knew of; that is reseeded before the next code */
  state: "reseeded" | "pending";
  generators: string[];
};

export type ForkCertificate = {
  /** upper bound of the difference to the host's clock */
  clock_skew_ms: number;
  guest_rng: "reseeded";
  kernels: Record<string, KernelState>;
  identity: { hostname: string; machine_id: string; boot_id: string };
  /** writes go to an overlay in the sandbox's own memory, or to a layer of its own on the host's disk */
  disk: "private-overlay" | "private-layer";
  /** pages are shared until written, then the sandbox's own */
  memory: "private-copy-on-write";
};

// The fork certificate: what was reset and checked to make a fork independent. Part of every response that returns a
// sandbox.

export type KernelState = {
  /**
   * "pending": the interpreter was busy at the branch, so its code may use a generator that is not registered yet; it
   * is reseeded before the next eval
   */
  state: "reseeded" | "pending";
  generators: string[];
};

export type ForkCertificate = {
  /** upper bound of the offset from the host's clock */
  clock_skew_ms: number;
  /** rate of the guest's clock relative to the host's; null: not measured */
  clock_drift_ppm: number | null;
  /** where the drift was measured: in this sandbox, which takes a while, or earlier in its snapshot */
  clock_measured: "sandbox" | "snapshot" | null;
  guest_rng: "reseeded";
  /**
   * upper bound of the time that processes ran before clock and randomness were reset; 0: they were held; null: unknown
   */
  ran_before_ms: number | null;
  /** generators of its interpreters that have the same state as in sibling forks until they reseed themselves */
  not_reseeded: string[];
  kernels: Record<string, KernelState>;
  identity: { hostname: string; machine_id: string; boot_id: string };
  /** writes go to an overlay in guest memory, or to the sandbox's own layer on the host's disk */
  disk: "private-overlay" | "private-layer";
  /** pages are shared until they are written */
  memory: "private-copy-on-write";
};

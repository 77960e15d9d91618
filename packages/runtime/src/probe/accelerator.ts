// Tests whether KVM runs and forks a guest on this host. The existence of the device file proves neither.

import { mkdir, readFile } from "node:fs/promises";
import { hostname, release } from "node:os";
import { join } from "node:path";
import * as z from "zod";
import { messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import type { GuestKernel } from "../guest-kernel/guest-kernel.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { bootId } from "../util/boot-id.ts";
import { VERSION } from "../version.ts";
import type { AcceleratorChoice, ConfinementState, CpuChoice, InstalledEngine } from "../vmm/driver.ts";
import { tryForking, type TrialOptions, type TrialResult } from "./fork-trial.ts";
import { KVM, kvmAdvice, kvmRefusal, lookAtKvm, type KvmFacts } from "./kvm-advice.ts";

const TRIAL_WITHIN_MS = 10_000;
/** A failure is retried after this time: the host may have been busy, or another hypervisor may have held the processor */
const FAILURE_KEPT_MS = 3600_000;

/** Results of trials that tried less are not used */
const TRIAL = "with a frozen copy";

const cached = z.strictObject({
  key: z.string(),
  at: z.number(),
  accelerator: z.enum(["kvm", "tcg"]),
  reason: z.string(),
  advice: z.string().optional(),
  freezeObstacle: z.string().nullable().optional(),
});

export type ProbeOptions = {
  engine: InstalledEngine;
  guestKernel: GuestKernel;
  warden: string;
  /** the trial uses the same confinement as later guests */
  confinement: ConfinementState;
  /** ignores earlier results */
  fresh?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** trial and inspection, for tests */
  host?: ProbeHost | undefined;
};

export type ProbeHost = {
  look: () => Promise<KvmFacts>;
  /** CPU model for guests */
  cpu: (engine: InstalledEngine, signal: AbortSignal | undefined) => Promise<CpuChoice>;
  try: (home: Home, opts: TrialOptions) => Promise<TrialResult>;
  now: () => number;
};

const HOST: ProbeHost = {
  look: lookAtKvm,
  cpu: async (engine, signal) => engine.bestCpu(signal),
  try: tryForking,
  now: Date.now,
};

/**
 * KVM if a guest boots, forks and branches with it, and whether it can be branched from a frozen copy; else the engine's emulation. A success is kept for this boot of the host, engine,
 * user and confinement; a failure for an hour at most.
 */
export async function probeAccelerator(home: Home, opts: ProbeOptions): Promise<AcceleratorChoice> {
  const host = opts.host ?? HOST;
  const facts = await host.look();
  const refusal = kvmRefusal(facts);
  if (refusal !== undefined) return { accelerator: "tcg", reason: refusal, advice: kvmAdvice(facts) };
  const { engine, confinement, guestKernel } = opts;
  const uid = process.getuid?.() ?? 0;
  const key = JSON.stringify([hostname(), release(), await bootId(), engine.fingerprint, uid, guestKernel.id, VERSION, TRIAL]);
  const file = join(home.cache, `accelerator-${confinement.kind}.json`);
  const known = opts.fresh === true ? undefined : await readCached(file);
  if (known?.key === key && (known.accelerator === "kvm" || host.now() - known.at < FAILURE_KEPT_MS)) {
    const { accelerator, reason, advice, freezeObstacle } = known;
    return {
      accelerator,
      reason,
      ...(advice === undefined ? {} : { advice }),
      ...(freezeObstacle === undefined ? {} : { freezeObstacle }),
    };
  }
  const choice = await chosen(home, opts, host, facts);
  await mkdir(home.cache, { recursive: true, mode: 0o700 });
  await writeFileAtomic(file, JSON.stringify({ key, at: host.now(), ...choice }));
  return choice;
}

/** The accelerator of the setting, without a trial; with advice when the device cannot be opened */
export async function askedAccelerator(accelerator: "kvm" | "tcg", look: ProbeHost["look"] = lookAtKvm): Promise<AcceleratorChoice> {
  const reason = `the setting accelerator is ${accelerator}`;
  if (accelerator === "tcg") return { accelerator, reason };
  const facts = await look();
  const refusal = kvmRefusal(facts);
  return refusal === undefined ? { accelerator, reason } : { accelerator, reason: `${reason}, but ${refusal}`, advice: kvmAdvice(facts) };
}

async function chosen(home: Home, opts: ProbeOptions, host: ProbeHost, facts: KvmFacts): Promise<AcceleratorChoice> {
  const { engine, guestKernel, warden, confinement, signal } = opts;
  try {
    const shape = { ...(await host.cpu(engine, signal)), accelerator: "kvm" as const };
    const { freezeObstacle } = await host.try(home, { engine, guestKernel, warden, confinement, shape, withinMs: TRIAL_WITHIN_MS, signal });
    return { accelerator: "kvm", reason: "a guest booted, forked and branched with KVM", freezeObstacle };
  } catch (error) {
    signal?.throwIfAborted();
    // also when nothing could be started: forkd runs on hosts without KVM
    return {
      accelerator: "tcg",
      reason: `${KVM} exists, but forking a guest with it fails: ${messageOf(error)}`,
      advice: kvmAdvice(facts),
    };
  }
}

async function readCached(file: string): Promise<z.infer<typeof cached> | undefined> {
  try {
    return cached.safeParse(JSON.parse(await readFile(file, "utf8"))).data;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

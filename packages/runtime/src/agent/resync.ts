// RESYNC: gives a fork its own clock, randomness and identity before a client can use it.

import { randomBytes } from "node:crypto";
import { ForkdError } from "../errors.ts";
import { readSample, type ClockSample } from "./clock.ts";
import { Writer } from "../util/codec.ts";
import type { AgentConnection } from "./wire/connection.ts";
import { T } from "./wire/protocol.ts";

/** Above this bound the clock is set a second time: by then the guest's code is warm, and the answer is fast */
const CLOCK_BOUND_MS = 20;
const CLOCK_TRIES = 5;

export type Identity = {
  sandboxId: string;
  hostname: string;
  machineId: string;
  env: Record<string, string>;
  /** default: the guest makes a new one */
  bootId?: string | undefined;
};

export type ResyncResult = {
  /** upper bound of the difference between guest and host clock */
  clockSkewMs: number;
  bootId: string;
  /** random generators inside running processes that got fresh state */
  generators: string[];
  /** no process but the agent ran before RESYNC was done */
  held: boolean;
  /** time at which clock and randomness were set, by the guest's monotonic clock; undefined: the agent is of an earlier version */
  uniqueAtMs: number | undefined;
};

/** Sends RESYNC at once; the promise settles when the guest has done every step, or rejects with FORK_FAILED */
export function startResync(agent: AgentConnection, identity: Identity, timeoutMs: number): Promise<ResyncResult> {
  const payload = new Writer()
    .i64(wallClockNs())
    .bytes(randomBytes(64))
    .str(identity.hostname)
    .str(identity.machineId)
    .str(identity.sandboxId)
    .map(identity.env)
    .str(identity.bootId ?? "")
    .done();
  return finishResync(agent, agent.call(T.RESYNC, payload, { timeoutMs }), timeoutMs);
}

async function finishResync(agent: AgentConnection, call: ReturnType<AgentConnection["call"]>, timeoutMs: number): Promise<ResyncResult> {
  const reader = await call;
  // The guest's clock was set to a time in the past, so it is behind by at most the age of the answer.
  let clockSkewMs = ageMs(reader.i64());
  const bootId = reader.str();
  const failures = reader.list((item) => ({ step: item.str(), why: item.str() }));
  const generators = reader.list((item) => item.str());
  const isEarlier = reader.isAtEnd;
  const held = isEarlier ? false : reader.u8() === 1;
  const uniqueAtMs = isEarlier ? undefined : Number(reader.u64()) / 1e6;
  if (failures.length > 0) {
    const steps = failures.map((failure) => `${failure.step} (${failure.why})`).join(", ");
    throw new ForkdError("FORK_FAILED", `The guest could not be made independent of its snapshot: ${steps}.`);
  }
  for (let i = 0; clockSkewMs > CLOCK_BOUND_MS && i < CLOCK_TRIES; i++) clockSkewMs = (await setClock(agent, timeoutMs)).skewMs;
  return { clockSkewMs, bootId, generators, held, uniqueAtMs };
}

/** `skewMs`: upper bound of the remaining error of the wall clock */
type ClockSet = { skewMs: number; sample: ClockSample | undefined };

/** Sets the guest's wall clock */
export async function setClock(agent: AgentConnection, timeoutMs: number): Promise<ClockSet> {
  const fromMs = performance.now();
  const answer = await agent.call(T.CLOCK, new Writer().i64(wallClockNs()).done(), { timeoutMs });
  const skewMs = ageMs(answer.i64());
  return { skewMs, sample: readSample(answer, fromMs) };
}

function wallClockNs(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}

function ageMs(guestNs: bigint): number {
  return Math.max(0, Number(wallClockNs() - guestNs) / 1e6);
}

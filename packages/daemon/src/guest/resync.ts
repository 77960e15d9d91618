// What makes a fork correct: its own clock, randomness and identity, before anyone gets it.

import { randomBytes } from "node:crypto";
import { ForkdError } from "../errors.ts";
import { Writer } from "./codec.ts";
import type { AgentConnection } from "./connection.ts";
import { T } from "./protocol.ts";

/** Beyond this bound the clock is set once more: by then the guest's code is warm and the answer quick */
const CLOCK_BOUND_MS = 20;
const CLOCK_TRIES = 5;

export type Identity = { sandboxId: string; hostname: string; machineId: string; env: Record<string, string> };

export type ResyncResult = {
  /** upper bound of the difference between guest and host clock */
  clockSkewMs: number;
  bootId: string;
  /** generators inside running processes that were filled with fresh state */
  generators: string[];
};

/** Sends the RESYNC request at once; the promise settles when the guest has done every step, or rejects with FORK_FAILED */
export function startResync(agent: AgentConnection, identity: Identity, timeoutMs: number): Promise<ResyncResult> {
  const payload = new Writer()
    .i64(wallClockNs())
    .bytes(randomBytes(64))
    .str(identity.hostname)
    .str(identity.machineId)
    .str(identity.sandboxId)
    .map(identity.env)
    .done();
  return finishResync(agent, agent.call(T.RESYNC, payload, { timeoutMs }), timeoutMs);
}

async function finishResync(agent: AgentConnection, call: ReturnType<AgentConnection["call"]>, timeoutMs: number): Promise<ResyncResult> {
  const reader = await call;
  // the guest's clock was set to a moment that had passed, so it is behind by at most the age of its answer
  let clockSkewMs = ageMs(reader.i64());
  const bootId = reader.str();
  const failures = reader.list((item) => ({ step: item.str(), why: item.str() }));
  const generators = reader.list((item) => item.str());
  if (failures.length > 0) {
    const steps = failures.map((failure) => `${failure.step} (${failure.why})`).join(", ");
    throw new ForkdError("FORK_FAILED", `The guest could not be made its own machine: ${steps}.`);
  }
  for (let i = 0; clockSkewMs > CLOCK_BOUND_MS && i < CLOCK_TRIES; i++) clockSkewMs = await setClock(agent, timeoutMs);
  return { clockSkewMs, bootId, generators };
}

/** Sets the guest's wall clock; the upper bound of what it still differs by, in ms */
export async function setClock(agent: AgentConnection, timeoutMs: number): Promise<number> {
  const answer = await agent.call(T.CLOCK, new Writer().i64(wallClockNs()).done(), { timeoutMs });
  return ageMs(answer.i64());
}

function wallClockNs(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}

function ageMs(guestNs: bigint): number {
  return Math.max(0, Number(wallClockNs() - guestNs) / 1e6);
}

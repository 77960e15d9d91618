// Requests to the agent before its VM is stopped for a snapshot.

import { ForkdError } from "../errors.ts";
import { Writer } from "../util/codec.ts";
import { readSample, type ClockSample } from "./clock.ts";
import type { AgentConnection } from "./wire/connection.ts";
import { T } from "./wire/protocol.ts";
import { AgentError } from "./wire/stream.ts";

export const GO_ON = 0;
const HOLD_PROCESSES = 1;
const BE_FIRST = 2;
const REHEARSE = 3;

/** Freezes every process but the agent until the RESYNC of a fork is done; false: the guest kernel or an earlier agent cannot */
export async function holdProcesses(agent: AgentConnection, timeoutMs: number): Promise<boolean> {
  try {
    await agent.call(T.HOLD, Buffer.of(HOLD_PROCESSES), { timeoutMs });
    return true;
  } catch (error) {
    if (error instanceof AgentError) return false;
    throw error;
  }
}

/**
 * Raises the agent's priority, so that it also runs first in a fork of a branch. Returns the guest's clock. undefined: the agent is of
 * an earlier version, or the guest does not answer; it can still be branched for inspection.
 */
export async function beFirst(agent: AgentConnection, timeoutMs: number): Promise<ClockSample | undefined> {
  const fromMs = performance.now();
  try {
    return readSample(await agent.call(T.HOLD, Buffer.of(BE_FIRST), { timeoutMs }), fromMs);
  } catch (error) {
    if (error instanceof ForkdError) return undefined;
    throw error;
  }
}

/**
 * Processes that a snapshot holds stay held over the next RESYNC, but for those interpreters of the named contexts that have one thread; gives
 * the contexts of these. Undefined: processes are not held, or the agent is of an earlier version.
 */
export async function rehearse(agent: AgentConnection, contexts: readonly string[], timeoutMs: number): Promise<string[] | undefined> {
  const payload = new Writer().u8(REHEARSE).list(contexts, (writer, context) => void writer.str(context));
  try {
    const answer = await agent.call(T.HOLD, payload.done(), { timeoutMs });
    answer.u64();
    return answer.list((item) => item.str());
  } catch (error) {
    if (error instanceof AgentError) return undefined;
    throw error;
  }
}

/** Ends a hold or a priority; an agent of an earlier version, or one that does not answer, has none */
export async function goOn(agent: AgentConnection, timeoutMs: number): Promise<void> {
  try {
    await agent.call(T.HOLD, Buffer.of(GO_ON), { timeoutMs });
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
  }
}

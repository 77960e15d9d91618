// Saved states of suspended sandboxes: chains of ephemeral snapshots.

import { ForkdError } from "@forkd/runtime/errors";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";
import type { Snapshots } from "./snapshots.ts";

/** Chain length from which a saved state is compacted into a base; otherwise the chain would grow without bound */
const MAX_DEPTH = 16;

/** Compacts a state with a long chain; undefined: use the state as it is (chain short enough, or compaction failed) */
export async function shortened(
  core: Core,
  snapshots: Snapshots,
  state: { id: string; newTag: () => Promise<string> | string; of: string },
  caller: Caller,
): Promise<{ id: string; tag: string } | undefined> {
  const { runtime, log, tables } = core;
  const { manifest } = await runtime.snapshots.byId(state.id);
  if (manifest.depth < MAX_DEPTH) return undefined;
  try {
    const { id, tag } = await snapshots.compact(state.id, await state.newTag(), { ...caller, remember: undefined });
    tables.snapshots.update(id, { ephemeral: 1 });
    // must be durable: the state it replaces is collected next
    await snapshots.onDisk(await runtime.snapshots.byId(id));
    return { id, tag };
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    log.warn({ of: state.of, err: error }, "a saved state could not be made a base of its own");
    return undefined;
  }
}

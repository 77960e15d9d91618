// The saved states of what sleeps: ephemeral snapshots, one on top of the other.

import { ForkdError } from "../errors.ts";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";
import type { Snapshots } from "./snapshots.ts";

/** From here on a saved state is made a base of its own: its chain would only grow */
const MAX_DEPTH = 16;

/** A state whose chain has become long, made a base of its own; undefined: it can be used as it is, also when that failed */
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
    return { id, tag };
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    log.warn({ of: state.of, err: error }, "a saved state could not be made a base of its own");
    return undefined;
  }
}

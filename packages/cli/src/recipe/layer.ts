// How snapshots that builds keep are told from finished ones: by their metadata.

import type { SnapshotInfo } from "forkd";

export const RECIPE_KEY = "forkd.recipe";
export const LAYER_KEY = "forkd.key";
export const STEP_KEY = "forkd.step";
/** The tag that it is built for: what has it is no finished snapshot */
export const BUILD_KEY = "forkd.build";

/** Whether it is only there for the next build */
export function isLayer(snapshot: Pick<SnapshotInfo, "metadata">): boolean {
  return snapshot.metadata[BUILD_KEY] !== undefined;
}

// Metadata keys that mark snapshots of builds.

import type { SnapshotInfo } from "../api/snapshot.ts";

/** Name of the recipe or template */
export const RECIPE_KEY = "forkd.recipe";
/** Key of the layer, or of the finished snapshot */
export const LAYER_KEY = "forkd.key";
/** Title of the layer's step */
export const STEP_KEY = "forkd.step";
/** Target tag of the build. Set only on layers, candidates and the sandboxes of builds */
export const BUILD_KEY = "forkd.build";

/** Whether the snapshot exists only for later builds */
export function isLayer(snapshot: Pick<SnapshotInfo, "metadata">): boolean {
  return snapshot.metadata[BUILD_KEY] !== undefined;
}

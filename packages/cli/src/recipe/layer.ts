// Metadata of the snapshots that builds keep.

import type { SnapshotInfo } from "forkd";

/** Prefix of the keys of forkd's own metadata */
export const OWN_KEYS = "forkd.";
/** The tag that a snapshot is built for; finished snapshots do not have it */
const BUILD_KEY = "forkd.build";

/** Whether lists omit it: layers of builds, states of suspended sandboxes, and sources of forks without a tag */
export function isInternal(snapshot: Pick<SnapshotInfo, "metadata" | "ephemeral">): boolean {
  return snapshot.metadata[BUILD_KEY] !== undefined || snapshot.ephemeral;
}

// Reserved metadata keys for E2B template properties that have no forkd field.

/** Default user and working directory of commands, set by the template */
export const USER_KEY = "e2b:user";
export const WORKDIR_KEY = "e2b:workdir";
/** Default user of E2B's own templates; a snapshot without the key uses root */
export const DEFAULT_USER = "user";

/** Entries that sandboxes inherit from their template, and snapshots from their sandbox */
export function inheritedOf(metadata: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).filter(([key]) => key === USER_KEY || key === WORKDIR_KEY));
}

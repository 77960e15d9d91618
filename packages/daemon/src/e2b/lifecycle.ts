// What E2B's API lets a client say about a sandbox and forkd has no field for: kept among its metadata, and not shown there.

const PREFIX = "e2b:";
/** Whoever knows its id may use its servers */
export const PUBLIC_KEY = `${PREFIX}public`;
/** Who acts when nobody is named, and where: as the template says */
export const USER_KEY = `${PREFIX}user`;
export const WORKDIR_KEY = `${PREFIX}workdir`;
/** E2B's own templates have this user; a snapshot that has not is used as root */
export const DEFAULT_USER = "user";

export function isReserved(key: string): boolean {
  return key.startsWith(PREFIX);
}

/** What goes from a template to its sandboxes, and from them to their snapshots */
export function inheritedOf(metadata: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).filter(([key]) => key === USER_KEY || key === WORKDIR_KEY));
}

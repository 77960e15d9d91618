// What E2B's API lets a client say about a sandbox and forkd has no field for: kept among its metadata, and not shown there.

const PREFIX = "e2b:";
/** Whoever knows its id may use its servers */
export const PUBLIC_KEY = `${PREFIX}public`;

export function isReserved(key: string): boolean {
  return key.startsWith(PREFIX);
}

// Ids as E2B writes them: lower case letters and digits only, since its host names are split at '-'.

const OURS = /^sb-([a-z2-7]{16})$/;
const THEIRS = /^sb([a-z2-7]{16})$/;

export function e2bId(id: string): string {
  return id.replace(OURS, "sb$1");
}

/** Anything else stays as it is, and is found by nobody */
export function forkdId(id: string): string {
  return id.replace(THEIRS, "sb-$1");
}

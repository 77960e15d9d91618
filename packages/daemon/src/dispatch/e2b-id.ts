// Sandbox ids in E2B's form: only lower-case letters and digits, because E2B clients split host names at '-'.

const OURS = /^sb-([a-z2-7]{16})$/;
const THEIRS = /^sb([a-z2-7]{16})$/;

export function e2bId(id: string): string {
  return id.replace(OURS, "sb$1");
}

/** Returns other text unchanged; it matches no sandbox id */
export function forkdId(id: string): string {
  return id.replace(THEIRS, "sb-$1");
}

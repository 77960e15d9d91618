// Paths of the parts of forkd that are not TypeScript.

import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..", "..", "..", "..");

export type Installation = {
  /** the guest's PID 1, a static binary */
  agent: string;
  /** the helper that starts VMMs and copies guest memory */
  warden: string;
  /** loaded into a VMM that would open the memory image of a child for writing */
  readOnlyPreload: string;
  /** sources of the warm interpreters */
  kernelsDir: string;
  /** the recipes that come with forkd */
  recipesDir: string;
};

export const installation: Installation = {
  agent: join(root, "dist", "bin", "forkd-agent"),
  warden: join(root, "dist", "bin", "forkd-warden"),
  readOnlyPreload: join(root, "dist", "bin", "forkd-read-only.so"),
  kernelsDir: join(root, "guest", "kernels"),
  recipesDir: join(root, "recipes"),
};

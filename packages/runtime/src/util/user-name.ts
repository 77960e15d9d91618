// Name of the user of this process, for advice in messages.

import { userInfo } from "node:os";

/** The uid when it has no entry in the password database, as in a container started with an arbitrary uid: there userInfo() throws */
export function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 0);
  }
}

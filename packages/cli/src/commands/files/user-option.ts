// Options of all verbs about files.

import { Option } from "commander";

export type UserOption = { user?: string };

export function userOption(): Option {
  return new Option("--user <name>", "user of the guest whose rights count and who owns new files (default: root)");
}

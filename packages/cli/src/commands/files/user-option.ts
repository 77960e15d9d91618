// What all verbs about files take.

import { Option } from "commander";

export type UserOption = { user?: string };

export function userOption(): Option {
  return new Option("--user <name>", "user of the guest whose rights count and who owns what is new (default: root)");
}

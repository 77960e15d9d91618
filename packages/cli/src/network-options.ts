// What a sandbox may connect to, as options of the verbs that make one.

import { Option } from "commander";
import { usageError } from "./errors.ts";
import { addText, wholeNumber } from "./options.ts";

import type { Command } from "commander";
import type { NetworkOptions } from "forkd";

export type NetworkFlags = { network?: NetworkOptions["mode"]; allow?: string[]; egressLimit?: number };

const NETWORK_MODES = ["none", "allow", "open"] as const;

export function acceptNetwork(command: Command, modeFlag = "--network <mode>"): Command {
  return command
    .addOption(new Option(modeFlag, "what it may connect to: nothing, what --allow says, or any public address").choices(NETWORK_MODES))
    .option("--allow <rule>", "example.org, *.example.org:443, 10.1.2.0/24:5432, [fd00::1]:80; may be repeated", addText)
    .option("--egress-limit <bytes>", "how much may leave it in all", wholeNumber);
}

/** undefined: nothing was said about it */
export function networkOf({ network, allow, egressLimit: egressLimitBytes }: NetworkFlags): NetworkOptions | undefined {
  const mode = network ?? (allow ? "allow" : undefined);
  if (mode !== undefined) return { mode, allow, egressLimitBytes };
  if (egressLimitBytes !== undefined) throw usageError("--egress-limit needs --network or --allow.");
  return undefined;
}

// Network policy, as options of the verbs that create a sandbox.

import { Option } from "commander";
import { usageError } from "../errors.ts";
import { addText, wholeNumber } from "./values.ts";

import type { Command } from "commander";
import type { NetworkOptions } from "forkd";

export type NetworkFlags = { network?: NetworkOptions["mode"]; allow?: string[]; deny?: string[]; egressLimit?: number };

const NETWORK_MODES = ["none", "allow", "open"] as const;

export function acceptNetwork(command: Command, modeFlag = "--network <mode>"): Command {
  return command
    .addOption(new Option(modeFlag, "network policy: nothing, the rules of --allow, or any public address").choices(NETWORK_MODES))
    .option("--allow <rule>", "example.org, *.example.org:443, 10.1.2.0/24:5432, [fd00::1]:80; may be repeated", addText)
    .option("--deny <range>", "with --network open, addresses to refuse: 203.0.113.7, 203.0.113.0/24:25; may be repeated", addText)
    .option("--egress-limit <bytes>", "limit of bytes that may leave it in total", wholeNumber);
}

/** undefined: no option was given */
export function networkOf({ network, allow, deny, egressLimit: egressLimitBytes }: NetworkFlags): NetworkOptions | undefined {
  const mode = network ?? (allow ? "allow" : undefined);
  if (mode !== undefined) return { mode, allow, deny, egressLimitBytes };
  if (deny !== undefined) throw usageError("--deny needs --network open.");
  if (egressLimitBytes !== undefined) throw usageError("--egress-limit needs --network or --allow.");
  return undefined;
}

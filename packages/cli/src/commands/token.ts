// forkd token: the group of verbs about tokens for access over the network.

import { Command } from "commander";
import { tokenCreateCommand, tokenRotateCommand } from "./token/create.ts";
import { tokenLsCommand } from "./token/ls.ts";
import { tokenRmCommand } from "./token/rm.ts";

import type { Cli } from "../cli.ts";

export function tokenCommand(cli: Cli): Command {
  return new Command("token")
    .description("tokens for access over the network: create, list, remove, rotate")
    .addCommand(tokenCreateCommand(cli))
    .addCommand(tokenLsCommand(cli))
    .addCommand(tokenRmCommand(cli))
    .addCommand(tokenRotateCommand(cli));
}

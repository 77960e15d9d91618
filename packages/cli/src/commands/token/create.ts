// forkd token create and rotate: the only two that show a token

import { Command, Option } from "commander";
import { connect } from "../../daemon.ts";
import { positiveInteger } from "../../options.ts";
import { printJson, printLine, printNote } from "../../output.ts";

import type { NewToken, Scope } from "forkd";
import type { Cli } from "../../cli.ts";

export function tokenCreateCommand(cli: Cli): Command {
  return new Command("create")
    .description("make a token and print it, once")
    .argument("<name>", "a name for it")
    .addOption(
      new Option("--scope <scope>", "read: look; exec: also fork, use and end sandboxes; admin: everything")
        .choices(["read", "exec", "admin"])
        .default("exec"),
    )
    .option("--max-sandboxes <count>", "the most sandboxes that live at once", positiveInteger)
    .option("--json", "print JSON")
    .action(async (name: string, opts: { scope: Scope; maxSandboxes?: number }) => {
      const forkd = await connect(cli);
      show(cli, await forkd.createToken(name, { scope: opts.scope, maxSandboxes: opts.maxSandboxes, signal: cli.signal }));
    });
}

export function tokenRotateCommand(cli: Cli): Command {
  return new Command("rotate")
    .description("give a token a new value and print it, once; the old value ends now")
    .argument("<name>", "its name")
    .option("--json", "print JSON")
    .action(async (name: string) => {
      const forkd = await connect(cli);
      show(cli, await forkd.rotateToken(name, { signal: cli.signal }));
    });
}

/** The token alone on stdout, so that it can go into a file or a variable */
function show(cli: Cli, token: NewToken): void {
  if (cli.json) {
    printJson(token);
    return;
  }
  printNote(`Token ${token.name}, scope ${token.scope}. It is shown once; use it as FORKD_TOKEN.`);
  printLine(token.token);
}

// forkd token create and rotate: the only two that print a token

import { Command, Option } from "commander";
import { connect } from "../../daemon/connect.ts";
import { duration, positiveInteger } from "../../options/values.ts";
import { printJson, printLine, printNote } from "../../terminal/output.ts";

import type { NewToken, Scope } from "forkd";
import type { Cli } from "../../cli.ts";

const E2B_OPTION: [flags: string, description: string] = ["--e2b", "print it in the form that E2B's SDKs take as a key"];

export function tokenCreateCommand(cli: Cli): Command {
  return new Command("create")
    .description("make a token and print it, once")
    .argument("<name>", "a name for it")
    .addOption(
      new Option(
        "--scope <scope>",
        "read: look; exec: also fork, use and end sandboxes; admin: everything in the project; operator: the daemon",
      )
        .choices(["read", "exec", "admin", "operator"])
        .default("exec"),
    )
    .option("--max-sandboxes <count>", "limit of live sandboxes", positiveInteger)
    .option("--expires-in <time>", "refuse it after this time: 90s, 10m, 2h, 30d", duration)
    .option(...E2B_OPTION)
    .option("--json", "print JSON")
    .action(async (name: string, opts: { scope: Scope; maxSandboxes?: number; expiresIn?: number; e2b?: boolean }) => {
      const forkd = await connect(cli);
      const { scope, maxSandboxes, expiresIn: expiresInSecs } = opts;
      show(cli, await forkd.createToken(name, { scope, maxSandboxes, expiresInSecs, signal: cli.signal }), opts);
    });
}

export function tokenRotateCommand(cli: Cli): Command {
  return new Command("rotate")
    .description("give a token a new value and print it, once; the old value is revoked")
    .argument("<name>", "its name")
    .option(...E2B_OPTION)
    .option("--json", "print JSON")
    .action(async (name: string, opts: { e2b?: boolean }) => {
      const forkd = await connect(cli);
      show(cli, await forkd.rotateToken(name, { signal: cli.signal }), opts);
    });
}

/** stdout has only the token, so that it can be redirected to a file or a variable */
function show(cli: Cli, made: NewToken, { e2b = false }: { e2b?: boolean }): void {
  // the same token: the daemon accepts it in both forms
  const token = e2b ? made.token.replace(/^fkd_/, "e2b_") : made.token;
  if (cli.json) {
    printJson({ ...made, token });
    return;
  }
  printNote(
    `Token ${made.name}, project ${made.project}, scope ${made.scope}. It is shown once; use it as ${e2b ? "E2B_API_KEY" : "FORKD_TOKEN"}.`,
  );
  printLine(token);
}

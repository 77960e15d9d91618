// forkd eval

import { text } from "node:stream/consumers";
import { Command, Option } from "commander";
import { connect } from "../daemon.ts";
import { usageError } from "../errors.ts";
import { positiveNumber } from "../options.ts";
import { printJson, writeGuestText } from "../output.ts";
import { workingOnTerminal } from "../progress.ts";
import { acceptTargets, refuseTargets } from "../targets.ts";

import type { EvalOptions, EvalResult } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { language?: EvalOptions["language"]; timeoutSecs: number };

export function evalCommand(cli: Cli): Command {
  const command = new Command("eval")
    .description("run code in a sandbox's warm interpreter, which keeps its state; prints the value of the last expression")
    .argument("[id]", "id or name")
    .argument("[code...]", "after --: the code; '-' reads it from standard input")
    .usage("[options] <id> -- <code>")
    .addOption(new Option("--language <language>", "needed only when the snapshot has several").choices(["python", "node"]))
    .option("--timeout-secs <secs>", "interrupt it after so many seconds", positiveNumber, 30)
    .option("--json", "print the whole result as JSON");
  return acceptTargets(command).action(async (given: string | undefined, words: string[], { language, timeoutSecs }: Options) => {
    const id = refuseTargets(command, given);
    if (words.length === 0) throw usageError("missing the code: forkd eval ID -- '1 + 1', or '-' for standard input");
    const code = words.length === 1 && words[0] === "-" ? await text(process.stdin) : words.join(" ");
    const forkd = await connect(cli);
    const result = await workingOnTerminal("Running the code", async () =>
      forkd.evalCode(id, code, { language, timeoutSecs, signal: cli.signal }),
    );
    cli.exitCode = result.exit_code;
    if (cli.json) printJson(result);
    else await printResult(result);
  });
}

async function printResult(result: EvalResult): Promise<void> {
  await writeGuestText(result.stdout);
  await writeGuestText(result.stderr, "stderr");
  if (result.error !== null) await writeGuestText(line(result.traceback ?? result.error), "stderr");
  else if (result.result !== null) await writeGuestText(line(result.result));
}

function line(text: string): string {
  return text.endsWith("\n") ? text : `${text}\n`;
}

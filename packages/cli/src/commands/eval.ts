// forkd eval

import { text } from "node:stream/consumers";
import { Command, Option } from "commander";
import { connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { LANGUAGES } from "../options/languages.ts";
import { addPair, positiveNumber } from "../options/values.ts";
import { printJson, printNote, writeGuestText } from "../terminal/output.ts";
import { workingOnTerminal } from "../terminal/progress.ts";
import { formsOf, saveResults } from "../guest/save-results.ts";
import { acceptGuestAddresses, refuseGuestAddresses } from "../legacy-options.ts";

import type { DisplayResult, EvalOptions, EvalResult } from "forkd";
import type { Cli } from "../cli.ts";

type Options = Pick<EvalOptions, "language" | "env"> & { context?: string; save?: string; timeoutSecs: number };

export function evalCommand(cli: Cli): Command {
  const command = new Command("eval")
    .description("run code in a sandbox's warm interpreter, which keeps its state; prints the value of the last expression")
    .argument("[id]", "id or name")
    .argument("[code...]", "after --: the code; '-' reads it from standard input")
    .usage("[options] <id> -- <code>")
    .addOption(new Option("--language <language>", "needed only when the snapshot has several").choices(LANGUAGES))
    .addOption(new Option("--context <id>", "the interpreter that runs it, from 'forkd context ls'").conflicts("language"))
    .option("--env <key=value>", "environment of this code; may be repeated", addPair)
    .option("--save <dir>", "write displayed objects, such as figures and tables, to files in this folder")
    .option("--timeout-secs <secs>", "interrupt it after so many seconds", positiveNumber, 30)
    .option("--json", "print the whole result as JSON");
  return acceptGuestAddresses(command).action(async (given: string | undefined, words: string[], opts: Options) => {
    const id = refuseGuestAddresses(command, given);
    if (words.length === 0) throw usageError("missing the code: forkd eval ID -- '1 + 1', or '-' for standard input");
    const code = words.length === 1 && words[0] === "-" ? await text(process.stdin) : words.join(" ");
    const forkd = await connect(cli);
    const { language, context, env, timeoutSecs, save } = opts;
    const result = await workingOnTerminal("Running the code", async () =>
      forkd.evalCode(id, code, { language, context, env, timeoutSecs, signal: cli.signal }),
    );
    cli.exitCode = result.exit_code;
    const saved = save === undefined ? undefined : await saveResults(result.results, save);
    if (cli.json) printJson(result);
    else await printResult(result, saved !== undefined);
    for (const path of saved ?? []) printNote(`Saved: ${path}`);
  });
}

async function printResult(result: EvalResult, isSaved: boolean): Promise<void> {
  await writeGuestText(result.stdout);
  for (const display of result.results) await printDisplay(display, isSaved);
  await writeGuestText(result.stderr, "stderr");
  if (result.error !== null) await writeGuestText(line(result.traceback ?? result.error), "stderr");
  else if (result.result !== null) await writeGuestText(line(result.result));
}

async function printDisplay(display: DisplayResult, isSaved: boolean): Promise<void> {
  const text = display.data["text/plain"];
  if (!display.is_main && typeof text === "string") await writeGuestText(line(text));
  const forms = formsOf(display);
  if (forms.length > 0 && !isSaved) printNote(`Displayed: ${forms.join(", ")}. --save DIR writes it to files.`);
}

function line(text: string): string {
  return text.endsWith("\n") ? text : `${text}\n`;
}

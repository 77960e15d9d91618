// forkd context: the interpreters of a sandbox.

import { Command, Option } from "commander";
import { connect } from "../daemon/connect.ts";
import { LANGUAGES } from "../options/languages.ts";
import { addPair } from "../options/values.ts";
import { printJson, printLine, printTable } from "../terminal/output.ts";
import { workingOnTerminal } from "../terminal/progress.ts";

import type { CreateContextOptions, Language } from "forkd";
import type { Cli } from "../cli.ts";

export function contextCommand(cli: Cli): Command {
  return new Command("context")
    .description("the interpreters of a sandbox, each with its own state: list, create, restart, interrupt, rm")
    .addCommand(listCommand(cli))
    .addCommand(createCommand(cli))
    .addCommand(restartCommand(cli))
    .addCommand(interruptCommand(cli))
    .addCommand(removeCommand(cli));
}

function listCommand(cli: Cli): Command {
  return new Command("list")
    .alias("ls")
    .description("list the interpreters of a sandbox")
    .argument("<id>", "id or name of the sandbox")
    .option("--json", "print JSON")
    .action(async (id: string) => {
      const forkd = await connect(cli);
      const contexts = await forkd.listContexts(id, { signal: cli.signal });
      if (cli.json) printJson(contexts);
      else
        printTable(contexts, [
          { title: "ID", value: (context) => context.id },
          { title: "LANGUAGE", value: (context) => context.language },
          { title: "STATE", value: (context) => context.state },
          { title: "CWD", value: (context) => context.cwd },
        ]);
    });
}

function createCommand(cli: Cli): Command {
  return new Command("create")
    .description("start another interpreter; prints its id, for 'forkd eval --context'")
    .argument("<id>", "id or name of the sandbox")
    .addOption(new Option("--language <language>", "which").choices(LANGUAGES).default("python"))
    .option("--cwd <dir>", "its working folder")
    .option("--env <key=value>", "environment; may be repeated", addPair)
    .option("--json", "print JSON")
    .action(async (id: string, opts: CreateContextOptions & { language: Language }) => {
      const { language, cwd, env } = opts;
      const forkd = await connect(cli);
      const context = await workingOnTerminal("Starting the interpreter", async () =>
        forkd.createContext(id, language, { cwd, env, signal: cli.signal }),
      );
      if (cli.json) printJson(context);
      else printLine(context.id);
    });
}

function restartCommand(cli: Cli): Command {
  return oneContext("restart", "put a fresh interpreter in its place, with nothing of its state").action(
    async (id: string, context: string) => {
      const forkd = await connect(cli);
      const fresh = await workingOnTerminal("Restarting the interpreter", async () =>
        forkd.restartContext(id, context, { signal: cli.signal }),
      );
      if (cli.json) printJson(fresh);
    },
  );
}

function interruptCommand(cli: Cli): Command {
  return oneContext("interrupt", "interrupt the code that it runs; its state stays").action(async (id: string, context: string) => {
    const forkd = await connect(cli);
    await forkd.interruptContext(id, context, { signal: cli.signal });
  });
}

function removeCommand(cli: Cli): Command {
  return oneContext("rm", "end an interpreter and what it runs").action(async (id: string, context: string) => {
    const forkd = await connect(cli);
    await forkd.deleteContext(id, context, { signal: cli.signal });
  });
}

function oneContext(name: string, description: string): Command {
  return new Command(name)
    .description(description)
    .argument("<id>", "id or name of the sandbox")
    .argument("<context>", "id of the interpreter, from 'forkd context ls'")
    .option("--json", "print JSON");
}

// The program: loads the module of the called verb, and declares all others by name only.

import { Command, Option } from "commander";
import { EXAMPLES } from "./examples.ts";
import { VERB_GROUPS } from "./verbs.ts";
import { VERSION } from "./installation.ts";

import type { Cli } from "./cli.ts";
import type { Verb } from "./verbs.ts";

/** Global options, accepted before and after the verb */
const GLOBAL_OPTIONS: [flags: string, about: string][] = [
  ["--daemon-url <address>", "use the daemon at this address (default: FORKD_URL, else your own, which is started when needed)"],
  ["--daemon-token <token>", "token for that daemon; FORKD_TOKEN is better, as others cannot see it"],
  ["--project <name>", "act in this project (default: FORKD_PROJECT, else that of the token); * lists across all"],
  ["--no-autostart", "do not start a daemon (also FORKD_NO_AUTOSTART=1)"],
  ["--guest-kernel <file>", "boot this guest kernel (default: FORKD_GUEST_KERNEL, else the distribution's newest)"],
];

/** `load`: the verb to load, or all of them */
export async function buildProgram(cli: Cli, load: { verb: string | undefined } | "all"): Promise<Command> {
  const program = new Command("forkd")
    .description("fork() for virtual machines: boot one, warm it, freeze it, fork it as often as you like.")
    .version(VERSION, "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .addHelpCommand(new Command("help").argument("[command]").description("print the help of a command").helpGroup("More:"))
    .enablePositionalOptions()
    .addHelpText("after", examplesOf(""))
    .showSuggestionAfterError()
    .hook("preAction", (_program, command) => applyGlobalOptions(cli, command));
  for (const [flags, about] of GLOBAL_OPTIONS) program.option(flags, about);
  for (const { title, verbs } of VERB_GROUPS) {
    for (const verb of verbs) {
      const wanted = load === "all" || load.verb === verb.name;
      program.addCommand((wanted ? await loadVerb(cli, verb) : new Command(verb.name).description(verb.about)).helpGroup(title));
    }
  }
  throwInsteadOfExit(program);
  return program;
}

/** The first word that is not an option: the verb, or the topic of help */
export function verbOf(args: readonly string[]): string | undefined {
  const takesValue = new Set(GLOBAL_OPTIONS.flatMap(([flags]) => (flags.includes("<") ? [flags.split(" ")[0]] : [])));
  const words: string[] = [];
  for (let i = 0; i < args.length && args[i] !== "--"; i++) {
    const arg = args[i] ?? "";
    if (takesValue.has(arg)) i++;
    else if (!arg.startsWith("-")) words.push(arg);
  }
  return words[0] === "help" ? words[1] : words[0];
}

async function loadVerb(cli: Cli, { load }: Verb): Promise<Command> {
  const command = (await load())(cli);
  acceptGlobalOptions(command);
  addExamples(command, command.name());
  return command;
}

function examplesOf(path: string): string {
  return `\nExamples:\n${(EXAMPLES[path] ?? []).map((line) => `  ${line}`).join("\n")}`;
}

function addExamples(command: Command, path: string): void {
  command.addHelpText("after", examplesOf(path));
  for (const child of command.commands) addExamples(child, `${path} ${child.name()}`);
}

/** Also accepted after the verb, where the help does not list them */
function acceptGlobalOptions(command: Command): void {
  command.enablePositionalOptions();
  const own = new Set(command.options.map(({ long }) => long));
  for (const [flags, about] of GLOBAL_OPTIONS) {
    const option = new Option(flags, about).hideHelp();
    // a verb may have an option of that name with another meaning
    if (!own.has(option.long)) command.addOption(option);
  }
  for (const child of command.commands) acceptGlobalOptions(child);
}

function applyGlobalOptions(cli: Cli, command: Command): void {
  let guestKernel: unknown;
  for (let at: Command | null = command; at; at = at.parent) {
    const opts: Record<string, unknown> = at.opts();
    if (opts["json"] === true) cli.json = true;
    if (opts["autostart"] === false) cli.autostart = false;
    if (typeof opts["daemonUrl"] === "string") cli.daemonUrl ??= opts["daemonUrl"];
    if (typeof opts["daemonToken"] === "string") cli.daemonToken ??= opts["daemonToken"];
    if (typeof opts["project"] === "string") cli.project ??= opts["project"];
    guestKernel ??= opts["guestKernel"];
  }
  cli.daemonUrl ??= process.env["FORKD_URL"] || undefined;
  cli.daemonToken ??= process.env["FORKD_TOKEN"] || undefined;
  cli.project ??= process.env["FORKD_PROJECT"] || undefined;
  if (process.env["FORKD_NO_AUTOSTART"] === "1") cli.autostart = false;
  if (typeof guestKernel === "string") process.env["FORKD_GUEST_KERNEL"] = guestKernel;
}

/** addCommand does not inherit these settings, and commander must not end the process */
function throwInsteadOfExit(command: Command): void {
  command.exitOverride().configureOutput({ outputError: () => {} });
  for (const child of command.commands) throwInsteadOfExit(child);
}

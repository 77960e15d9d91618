// forkd key: the group of verbs about the keys that sign packs.

import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { forEach } from "../each.ts";
import { formatTime } from "../terminal/format.ts";
import { printFacts, printJson, printLine, printTable } from "../terminal/output.ts";

import type { KeyInfo } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { quiet?: boolean };

export function keyCommand(cli: Cli): Command {
  return new Command("key")
    .description("keys that sign packs, and trusted keys: new, list, show, trust, remove")
    .addCommand(newCommand(cli))
    .addCommand(lsCommand(cli))
    .addCommand(showCommand(cli))
    .addCommand(trustCommand(cli))
    .addCommand(rmCommand(cli));
}

function newCommand(cli: Cli): Command {
  return new Command("new")
    .description("make a key to sign with; its private half stays in the daemon's store")
    .argument("<name>", "a name for it")
    .option("--json", "print JSON")
    .action(async (name: string) => {
      const forkd = await connect(cli);
      show(cli, await forkd.createKey(name, { signal: cli.signal }));
    });
}

function lsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the keys")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const forkd = await connect(cli);
      const keys = await forkd.listKeys({ signal: cli.signal });
      if (cli.json) printJson(keys);
      else if (opts.quiet) for (const key of keys) printLine(key.name);
      else if (keys.length === 0) printLine("There are no keys. Make one with 'forkd key new'.");
      else
        printTable(keys, [
          { title: "NAME", value: (key) => key.name },
          { title: "KIND", value: (key) => key.kind },
          { title: "ID", value: (key) => key.id.slice(0, 16) },
          { title: "CREATED", value: (key) => formatTime(key.created_at_unix) },
        ]);
    });
}

function showCommand(cli: Cli): Command {
  return new Command("show")
    .description("print the public half of a key, for machines that shall trust it")
    .argument("<name>", "its name, or the beginning of its id")
    .option("-q, --quiet", "print the public key only")
    .option("--json", "print JSON")
    .action(async (name: string, opts: Options) => {
      const forkd = await connect(cli);
      const key = await forkd.getKey(name, { signal: cli.signal });
      if (opts.quiet && !cli.json) printLine(key.public_key);
      else show(cli, key);
    });
}

function trustCommand(cli: Cli): Command {
  return new Command("trust")
    .description("trust the public key of another machine")
    .argument("<name>", "a name for it here")
    .argument("<key>", "forkd-ed25519:…, a file that holds it, or - for standard input")
    .option("--json", "print JSON")
    .action(async (name: string, key: string) => {
      const publicKey = (await textOf(key)).trim();
      const forkd = await connect(cli);
      show(cli, await forkd.createKey(name, { publicKey, signal: cli.signal }));
    });
}

function rmCommand(cli: Cli): Command {
  return new Command("rm")
    .description("remove keys; what they signed stays signed")
    .argument("<names...>", "names")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (names: string[], opts: Options) => {
      const forkd = await connect(cli);
      const remove = async (name: string): Promise<unknown> => forkd.deleteKey(name, { signal: cli.signal });
      await forEach(cli, names, remove, { step: "Removing", done: "Removed %s.", quiet: opts.quiet });
    });
}

async function textOf(key: string): Promise<string> {
  if (key.startsWith("forkd-ed25519:")) return key;
  return key === "-" ? text(process.stdin) : readFile(key, "utf8");
}

function show(cli: Cli, key: KeyInfo): void {
  if (cli.json) {
    printJson(key);
    return;
  }
  printFacts([
    ["name", key.name],
    ["kind", key.kind === "own" ? "own: it can sign" : "trusted"],
    ["id", key.id],
    ["public key", key.public_key],
  ]);
}

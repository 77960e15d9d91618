// forkd kill, and its aliases rm and delete

import { Command, Option } from "commander";
import { connect } from "../daemon/connect.ts";
import { forEach } from "../each.ts";
import { usageError } from "../errors.ts";
import { printJson, printLine } from "../terminal/output.ts";
import { working } from "../terminal/progress.ts";

import type { Controller } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { all?: boolean; tag?: string; quiet?: boolean };

const STEP = "Ending sandboxes";

const ABOUT = "end sandboxes; returns when their processes and files are gone";

export function killCommand(cli: Cli): Command {
  return build(cli, "kill", ABOUT);
}

/** docker removes a running container only with -f, so -f is accepted */
export function rmCommand(cli: Cli): Command {
  return build(cli, "rm", `${ABOUT}. 'forkd snapshot rm' removes snapshots, 'forkd image rm' images`).addOption(
    new Option("-f, --force").hideHelp(),
  );
}

export function deleteCommand(cli: Cli): Command {
  return build(cli, "delete", ABOUT);
}

function build(cli: Cli, name: string, about: string): Command {
  return new Command(name)
    .description(about)
    .argument("[ids...]", "ids or names")
    .option("--all", "all of them")
    .option("--tag <tag>", "all forks of this snapshot")
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON")
    .action(async (ids: string[], opts: Options) => {
      const ways = [ids.length > 0, opts.all === true, opts.tag !== undefined].filter(Boolean).length;
      if (ways !== 1) throw usageError("Name sandboxes, or give --all or --tag.");
      const forkd = await connect(cli);
      if (ids.length === 0) {
        await killMany(cli, forkd, opts);
        return;
      }
      const kill = async (id: string): Promise<unknown> => forkd.killSandbox(id, { signal: cli.signal });
      await forEach(cli, ids, kill, { step: STEP, done: "Ended %s.", quiet: opts.quiet });
    });
}

async function killMany(cli: Cli, forkd: Controller, opts: Options): Promise<void> {
  const which = { ...(opts.tag === undefined ? { all: true } : { tag: opts.tag }), signal: cli.signal };
  const ids = await working(STEP, async () => forkd.killSandboxes(which));
  if (cli.json) printJson(ids.map((id) => ({ id, ok: true })));
  else if (ids.length === 0 && !opts.quiet) printLine("There were no sandboxes.");
  else for (const id of ids) printLine(opts.quiet ? id : `Ended ${id}.`);
}

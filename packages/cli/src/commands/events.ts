// forkd events

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { addWords, positiveInteger, wholeNumber } from "../options/values.ts";
import { printJsonLine, printPlain } from "../terminal/output.ts";

import type { EventType, ForkdEvent } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { since?: number; types?: string[]; sandbox?: string; count?: number };

export function eventsCommand(cli: Cli): Command {
  return new Command("events")
    .description("follow every change of state until Ctrl-C")
    .option("--since <id>", "begin after this event; 0: with all stored ones", wholeNumber)
    .option("--types <list>", "only these, such as sandbox.ended,snapshot.ready", addWords)
    .option("--sandbox <id>", "only those of this sandbox")
    .option("-n, --count <count>", "end after so many", positiveInteger)
    .option("--json", "print one JSON value per line")
    .action(async (opts: Options) => {
      const forkd = await connect(cli);
      cli.isViewer = true;
      let left = opts.count ?? Infinity;
      const query = { since: opts.since, types: opts.types as EventType[] | undefined, sandbox: opts.sandbox };
      for await (const event of forkd.events({ ...query, signal: cli.signal })) {
        if (cli.json) printJsonLine(event);
        else printPlain(lineOf(event));
        if (--left <= 0) return;
      }
      // the iteration ends without an error after Ctrl-C
      cli.signal.throwIfAborted();
    });
}

function lineOf(event: ForkdEvent): string {
  const subject = [event.sandbox, event.snapshot].filter(Boolean).join(" of ");
  const by = event.principal ? ` by ${event.principal}` : "";
  const why = event.reason ? `: ${event.reason}` : "";
  return `${event.time}  ${String(event.id).padStart(5)}  ${event.type.padEnd(18)}  ${subject}${by}${why}`.trimEnd();
}

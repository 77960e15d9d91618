// forkd preview

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatTime } from "../terminal/format.ts";
import { duration, portNumber } from "../options/values.ts";
import { printJson, printLine, printNote } from "../terminal/output.ts";

import type { Cli } from "../cli.ts";

export function previewCommand(cli: Cli): Command {
  return new Command("preview")
    .description("print a link that opens a server in a sandbox with any browser, until it expires")
    .argument("<id>", "id or name")
    .argument("<port>", "port inside the guest", portNumber)
    .option("--expires <time>", "90, 90s, 10m, 2h, 1d; at most 7 days", duration, 3600)
    .option("--json", "print JSON")
    .action(async (id: string, port: number, opts: { expires: number }) => {
      const forkd = await connect(cli);
      const preview = await forkd.createPreview(id, port, { expiresInSecs: opts.expires, signal: cli.signal });
      if (cli.json) {
        printJson(preview);
        return;
      }
      printNote(`Anyone with this link can use port ${port} of ${id} until ${formatTime(preview.expires_at_unix)} UTC.`);
      printLine(preview.url);
    });
}

// forkd ui

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Command, Option } from "commander";
import { connect } from "../daemon/connect.ts";
import { paths } from "../daemon/paths.ts";
import { duration } from "../options/values.ts";
import { printJson, printLine, printNote } from "../terminal/output.ts";

import type { Scope, UiLink } from "forkd";
import type { Cli } from "../cli.ts";

const OPENER = "xdg-open";
const USUAL_SESSION = 12 * 3600;

type Options = { scope?: Scope; session: number; open: boolean; logOut?: boolean };

export function uiCommand(cli: Cli): Command {
  return new Command("ui")
    .description("open the dashboard in a browser: a link that works once and logs that browser in")
    .addOption(
      new Option("--scope <scope>", "what the dashboard may do: read, exec, admin or operator (default: what you may)").choices([
        "read",
        "exec",
        "admin",
        "operator",
      ]),
    )
    .option("--session <time>", "how long the browser stays logged in: 90s, 10m, 2h, 1d; at most 14 days", duration, USUAL_SESSION)
    .option("--no-open", "only print the link")
    .option("--log-out", "log all browsers out instead")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const forkd = await connect(cli);
      if (opts.logOut) {
        await forkd.deleteUiSessions({ signal: cli.signal });
        printNote("All browsers are logged out.");
        return;
      }
      const made = await forkd.createUiLink({ scope: opts.scope, sessionSecs: opts.session, signal: cli.signal });
      const link = { ...made, url: reachable(made.url, cli.daemonUrl) };
      if (cli.json) printJson(link);
      else await show(link, opts);
    });
}

/** A daemon behind a proxy does not know the address under which it is reached */
function reachable(url: string, daemonUrl: string | undefined): string {
  return daemonUrl?.startsWith("http") ? `${new URL(daemonUrl).origin}${url.slice(new URL(url).origin.length)}` : url;
}

async function show(link: UiLink, opts: Options): Promise<void> {
  const isOpened = opts.open && hasScreen() && (await openBrowser(link.url));
  printNote(isOpened ? "The dashboard opens in your browser. If it does not, open this link:" : "Open this link in a browser:");
  printLine(link.url);
  printNote("The link works once, within two minutes.");
}

function hasScreen(): boolean {
  return Boolean(process.env["DISPLAY"] || process.env["WAYLAND_DISPLAY"]);
}

/** Through a private file: other users of this machine can read the arguments of a process, and the link is a secret */
async function openBrowser(url: string): Promise<boolean> {
  const { run } = paths();
  await mkdir(run, { recursive: true, mode: 0o700 });
  const file = join(run, "ui.html");
  await rm(file, { force: true });
  await writeFile(file, `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=${url}"><title>forkd</title>`, {
    mode: 0o600,
    flag: "wx",
  });
  const opener = spawn(OPENER, [file], { stdio: "ignore", detached: true });
  try {
    await once(opener, "spawn");
  } catch {
    return false; // there is no xdg-open; the link is printed
  }
  opener.unref();
  return true;
}

// forkd push

import { Command } from "commander";
import { ABORTABLE, connect } from "../daemon/connect.ts";
import { placeOf, remoteOptions } from "../options/hub.ts";
import { formatBytes, printJson, printLine } from "../terminal/output.ts";
import { compressionLevel } from "../options/values.ts";
import { working } from "../terminal/progress.ts";
import { packInto } from "./pack.ts";

import type { PushedSnapshot } from "forkd";
import type { Cli } from "../cli.ts";

type Options = { level?: number; sign?: string; insecureHttp?: boolean };

export function pushCommand(cli: Cli): Command {
  return new Command("push")
    .description("send a snapshot, with all it builds on, to a registry, a web server or a file")
    .argument("<tag>", "tag of the snapshot")
    .argument("<to>", "oci://HOST/NAME[:TAG], an https address that takes PUT, or a file; - reads it from standard input")
    .option("--sign <key>", "sign it with this key ('forkd key ls')")
    .option("--level <number>", "zstd level: 1 is fast, 19 is small (default: 3)", compressionLevel)
    .option("--insecure-http", "plain http to a server that is not the daemon's machine")
    .option("--json", "print JSON")
    .action(async (tag: string, to: string, opts: Options) => {
      const place = await placeOf(to, "push");
      const { level, sign } = opts;
      if (place.kind === "file") return packInto(cli, tag, place.path, { level, sign });
      const remote = await remoteOptions(place.address, opts);
      const forkd = await connect(cli);
      const pushed = await working(`Pushing ${tag}`, async (onProgress) =>
        forkd.pushSnapshot(tag, place.address, { ...ABORTABLE, ...remote, level, sign, timeoutMs: 0, onProgress, signal: cli.signal }),
      );
      if (cli.json) printJson(pushed);
      else printPushed(tag, pushed);
    });
}

function printPushed(tag: string, { to, digest, sha256, bytes, sent_bytes: sent }: PushedSnapshot): void {
  const how = sent === bytes ? formatBytes(bytes) : `${formatBytes(bytes)}, of which ${formatBytes(sent)} were sent`;
  printLine(`Snapshot ${tag} is at ${to}: ${how}.`);
  printLine(digest ?? `sha256:${sha256}`);
}

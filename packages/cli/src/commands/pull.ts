// forkd pull

import { Command } from "commander";
import { ABORTABLE, connect } from "../daemon/connect.ts";
import { namedOptions, placeOf, remoteOptions } from "../options/hub.ts";
import { working } from "../terminal/progress.ts";
import { printUnpacked, unpackFile } from "./unpack.ts";

import type { Cli } from "../cli.ts";

type Options = { tag?: string; force?: boolean; keepNetwork?: boolean; quiet?: boolean; hub?: string; insecureHttp?: boolean };

export function pullCommand(cli: Cli): Command {
  return new Command("pull")
    .description("get a snapshot, with all it builds on, from a registry, a web server, a hub or a file")
    .argument("<from>", "oci://HOST/NAME[:TAG], an https address, OWNER/NAME[@VERSION] of a hub, or a file; - reads it from standard input")
    .option("--tag <tag>", "tag of the snapshot (default: its original name)")
    .option("--force", "take the tag from the snapshot that has it")
    .option("--keep-network", "use the network policy of the pack, but never allow private networks or the host")
    .option("--hub <url>", "address of the index with the name (default: FORKD_HUB_URL, else the daemon's setting hub_url)")
    .option("--insecure-http", "plain http to a server that is not the daemon's machine")
    .option("-q, --quiet", "print the tag only")
    .option("--json", "print JSON")
    .action(async (from: string, opts: Options) => {
      const place = await placeOf(from, "pull");
      const { tag, force, keepNetwork, quiet } = opts;
      if (place.kind === "file") return unpackFile(cli, place.path, { tag, force, keepNetwork, quiet });
      const forkd = await connect(cli);
      const remote =
        place.kind === "name"
          ? await namedOptions(forkd, place.address, { ...opts, signal: cli.signal })
          : await remoteOptions(place.address, opts);
      const request = { ...ABORTABLE, ...remote, tag, force, keepNetwork, timeoutMs: 0, signal: cli.signal };
      const unpacked = await working(`Pulling ${tag ?? "a snapshot"}`, async (onProgress) =>
        forkd.pullSnapshot(place.address, { ...request, onProgress }),
      );
      printUnpacked(cli, unpacked, opts);
    });
}

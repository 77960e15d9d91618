// forkd hub: lists the snapshots of an index.

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { formatBytes, printJson, printLine, printTable } from "../terminal/output.ts";
import { hubOf } from "../options/hub.ts";

import type { HubListing } from "forkd";
import type { Cli } from "../cli.ts";

type Row = { name: string; version: string; bytes: number | null; vouched: string; description: string };

export function hubCommand(cli: Cli): Command {
  return new Command("hub").description("an index of snapshots to pull: list it").addCommand(hubLsCommand(cli));
}

function hubLsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the snapshots of a hub")
    .option("--hub <url>", "address of its index (default: FORKD_HUB_URL, else the daemon's setting hub_url)")
    .option("--insecure-http", "plain http to a server that is not the daemon's machine")
    .option("--json", "print JSON")
    .action(async (opts: { hub?: string; insecureHttp?: boolean }) => {
      const forkd = await connect(cli);
      const listing = await forkd.listHub({ hub: hubOf(opts), insecureHttp: opts.insecureHttp, signal: cli.signal });
      if (cli.json) printJson(listing);
      else if (listing.packages.length === 0) printLine(`The hub ${listing.hub} is empty.`);
      else
        printTable(rowsOf(listing), [
          { title: "NAME", value: ({ name }) => name },
          { title: "VERSION", value: ({ version }) => version },
          { title: "SIZE", value: ({ bytes }) => (bytes === null ? "-" : formatBytes(bytes)), align: "right" },
          { title: "CHECKED BY", value: ({ vouched }) => vouched },
          { title: "DESCRIPTION", value: ({ description }) => description, wraps: true },
        ]);
    });
}

function rowsOf({ packages }: HubListing): Row[] {
  return packages.flatMap(({ name, description, latest, versions }) =>
    versions.map(({ version, size_bytes: bytes, sha256, manifest_sha256: manifest, key, url }) => ({
      name,
      version: version === latest ? `${version} (latest)` : version,
      bytes,
      vouched: [sha256 || manifest || url.includes("@sha256:") ? "sum" : "", key ? "key" : ""].filter(Boolean).join(", ") || "nothing",
      description: description ?? "-",
    })),
  );
}

// forkd gateway

import { Command } from "commander";
import { wholeNumber } from "../options/values.ts";
import { printJson, printLine } from "../terminal/output.ts";

import type { GivenOptions } from "@forkd/gateway";
import type { Cli } from "../cli.ts";

export function gatewayCommand(cli: Cli): Command {
  return new Command("gateway")
    .description("serve several daemons as one: a gateway of a cluster, in the foreground until Ctrl-C")
    .option("--nodes <urls>", "addresses of the daemons, separated by commas")
    .option("--state <folder>", "folder with tokens, projects and tags of the cluster; gateways of one machine share it")
    .option("--kubernetes <service>", "in place of both: daemons of this Service, state in Kubernetes' API")
    .option("--drain-machines", "with --kubernetes: move the sandboxes of machines that are cordoned, as 'kubectl drain' does at first")
    .requiredOption("--cluster-key-file <file>", "file with the key that the daemons have as cluster_key_file")
    .option("--bind <host:port>", "address to listen on", "127.0.0.1:8890")
    .option("--token-file <file>", "file with one admin token, for the first token")
    .option("--tls-cert <file>", "certificate, for https; together with --tls-key")
    .option("--tls-key <file>", "its key")
    .option("--insecure", "allow plain HTTP on an address that others reach")
    .option("--proxy-domain <domain>", "servers in sandboxes have the host PORT-ID.DOMAIN; none: no such hosts", "localhost")
    .option("--allowed-hosts <list>", "further names under which it may be asked without TLS, separated by commas")
    .option("--audit-log <file>", "log of all requests", "none")
    .option("--agents-bind <host:port>", "also serve the agent-sandbox API of Kubernetes, for its aggregation layer; needs --tls-cert")
    .option("--agents-client-ca <file>", "authority of the aggregation layer's certificate; with --kubernetes the cluster says it")
    .option("--agents-client-names <list>", "common names of that certificate, separated by commas; without it all")
    .option("--drain-secs <secs>", "how long a stop waits for requests", wholeNumber, 30)
    .option("--json", "print JSON")
    .action(async (opts: GivenOptions) => {
      const { gatewayOptions, startGateway } = await import("@forkd/gateway");
      const { createLog } = await import("@forkd/daemon/observe/log");
      await using gateway = await startGateway(gatewayOptions(opts), { log: createLog("info", process.stderr) });
      if (cli.json) printJson({ bind: gateway.bind, ...(gateway.agentsBind === "" ? {} : { agents_bind: gateway.agentsBind }) });
      else printLine(`The gateway serves ${opts.tlsCert === undefined ? "http" : "https"}://${gateway.bind}; Ctrl-C ends it.`);
      cli.isViewer = true;
      const ended = Promise.withResolvers<void>();
      cli.signal.addEventListener("abort", () => ended.resolve(), { once: true });
      if (cli.signal.aborted) ended.resolve();
      await ended.promise;
    });
}

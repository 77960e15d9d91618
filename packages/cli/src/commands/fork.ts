// forkd fork, and its alias spawn

import { setTimeout as sleep } from "node:timers/promises";
import { Command, Option } from "commander";
import { ABORTABLE, connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { EXIT_FAILURE, printProblem } from "../exit.ts";
import { acceptNetwork, networkOf, type NetworkFlags } from "../options/network.ts";
import { acceptLimits, limitsOf } from "../options/limits.ts";
import { addPair, addShare, duration, forkCount, positiveNumber } from "../options/values.ts";
import { printJson, printLine, printNote, printWarnings } from "../terminal/output.ts";
import { acceptLegacyOptions, noteLegacyOptions } from "../legacy-options.ts";
import { working } from "../terminal/progress.ts";
import { printForks } from "../terminal/sandbox-table.ts";
import { noteUnconfined } from "../daemon/unconfined.ts";

import type { Controller, ForkedSandboxes, ForkOutcome, LimitOptions, SandboxInfo, Share, SpawnOptions } from "forkd";
import type { Cli } from "../cli.ts";

type Options = LimitOptions &
  NetworkFlags & {
    tag?: string;
    fromSandbox?: string;
    count: number;
    name?: string;
    env?: Record<string, string>;
    metadata?: Record<string, string>;
    share?: Share[];
    /** false: no shares, also if the sandbox that is forked has some */
    shares: boolean;
    isolation?: "any" | "kvm";
    ttl?: number;
    idleTimeout?: number;
    suspendedTtl?: number;
    onTimeout?: "end" | "suspend";
    autoResume?: boolean;
    perItem?: boolean;
    settleSecs?: number;
    perChildNetns?: boolean;
    liveFork?: boolean;
    hugepages?: boolean;
    prewarm?: boolean;
    quiet?: boolean;
  };

type LifeOptions = Pick<SpawnOptions, "ttlSecs" | "idleTimeoutSecs" | "suspendedTtlSecs" | "onTimeout" | "autoResume">;

/** Sent to the daemon, which reports that they have no effect */
const SENT_PLUMBING = ["--per-child-netns", "--live-fork", "--hugepages", "--prewarm"];
const OWN_PLUMBING = ["--keep-workdir"];
const KILL_MS = 30_000;

export function forkCommand(cli: Cli): Command {
  return build(cli, "fork", "fork a snapshot: n sandboxes, which run until they are ended");
}

export function spawnCommand(cli: Cli): Command {
  return build(cli, "spawn", "the same as fork");
}

function build(cli: Cli, name: string, about: string): Command {
  const command = new Command(name)
    .description(about)
    .argument("[snapshot]", "tag of the snapshot")
    .option("--tag <tag>", "tag of the snapshot, as an option; with --from-sandbox, a tag to keep the snapshot under")
    .option("--from-sandbox <id>", "branch this running sandbox, which continues, and fork the branch")
    .option("-n, --count <count>", "how many", forkCount, 1)
    .option("--name <name>", "a name for it; only with -n 1")
    .option("--env <key=value>", "environment of every process in it; may be repeated", addPair)
    .option("--metadata <key=value>", "kept for you; may be repeated", addPair)
    .option("--share <folder[:place]>", "a folder of the daemon's machine that it sees, live and read-only; may be repeated", addShare)
    .option("--no-shares", "no shares, also if the sandbox that is forked has some")
    .addOption(
      new Option("--isolation <what>", "any: emulation is allowed, which is not a security boundary; kvm: only with KVM").choices([
        "any",
        "kvm",
      ]),
    )
    .option("--ttl <time>", "time until it ends: 90, 90s, 10m, 2h, 1d", duration)
    .option("--idle-timeout <time>", "time without use after which it ends", duration)
    .option("--suspended-ttl <time>", "time after which it is removed while it is suspended", duration)
    .addOption(new Option("--on-timeout <what>", "what happens when its time is over").choices(["end", "suspend"]))
    .option("--auto-resume", "resume it at its next use after a suspend")
    .option("--per-item", "keep successful forks when others fail, with exit code 1")
    .option("--settle-secs <secs>", "end them after so many seconds", positiveNumber)
    .option("-q, --quiet", "print ids only")
    .option("--json", "print JSON");
  acceptLimits(acceptNetwork(command));
  return acceptLegacyOptions(command, [...SENT_PLUMBING, ...OWN_PLUMBING]).action(async (snapshot: string | undefined, opts: Options) => {
    noteLegacyOptions(command, OWN_PLUMBING);
    const { fromSandbox } = opts;
    const source = fromSandbox ?? tagOf(snapshot, opts);
    if (fromSandbox !== undefined) checkFromSandbox(snapshot, opts);
    const forkd = await connect(cli);
    const what = `Forking ${opts.count} of ${source}`;
    const sandboxes =
      fromSandbox === undefined
        ? printForked(cli, await working(what, async () => spawned(cli, forkd, source, opts)), opts)
        : printTips(cli, await working(what, async () => branched(cli, forkd, source, opts)), opts);
    await noteUnconfined(cli, forkd, sandboxes);
    if (opts.settleSecs !== undefined) await settle(cli, forkd, sandboxes, opts.settleSecs);
  });
}

async function spawned(cli: Cli, forkd: Controller, tag: string, opts: Options): Promise<ForkOutcome[]> {
  const request = { ...requestOf(opts), ...ABORTABLE, signal: cli.signal };
  if (opts.perItem) return forkd.trySpawnSandboxes(tag, request);
  return (await forkd.spawnSandboxes(tag, request)).map((sandbox) => ({ sandbox }));
}

async function branched(cli: Cli, forkd: Controller, id: string, opts: Options): Promise<ForkedSandboxes> {
  const { count: n, env, metadata, tag } = opts;
  const given = { network: networkOf(opts), shares: sharesOf(opts), isolation: opts.isolation, ...limitsOf(opts) };
  const fields = { n, env, metadata, tag, ...lifeOf(opts), ...given };
  return forkd.forkSandbox(id, { ...fields, ...ABORTABLE, signal: cli.signal });
}

/** JSON: the intermediate snapshot, and the sandboxes */
function printTips(cli: Cli, answer: ForkedSandboxes, opts: Options): SandboxInfo[] {
  if (!cli.json)
    return printForked(
      cli,
      answer.sandboxes.map((sandbox) => ({ sandbox })),
      opts,
    );
  printJson(answer);
  return answer.sandboxes;
}

function checkFromSandbox(snapshot: string | undefined, opts: Options): void {
  if (snapshot) throw usageError("Name a snapshot or --from-sandbox, not both.");
  if (opts.perItem || opts.name !== undefined) throw usageError("--per-item and --name are not possible with --from-sandbox.");
}

function tagOf(snapshot: string | undefined, opts: Options): string {
  if (snapshot && opts.tag && snapshot !== opts.tag) throw usageError("The snapshot is named twice, differently.");
  const tag = snapshot ?? opts.tag;
  if (!tag) throw usageError("Name the snapshot to fork: forkd fork TAG.");
  if (opts.name !== undefined && opts.count !== 1) throw usageError("--name is only possible with -n 1.");
  return tag;
}

function lifeOf({ ttl, idleTimeout, suspendedTtl, onTimeout, autoResume }: Options): LifeOptions {
  return { ttlSecs: ttl, idleTimeoutSecs: idleTimeout, suspendedTtlSecs: suspendedTtl, onTimeout, autoResume };
}

function requestOf(opts: Options): SpawnOptions {
  return {
    n: opts.count,
    name: opts.name,
    env: opts.env,
    metadata: opts.metadata,
    network: networkOf(opts),
    shares: sharesOf(opts),
    isolation: opts.isolation,
    ...lifeOf(opts),
    ...limitsOf(opts),
    perChildNetns: opts.perChildNetns,
    liveFork: opts.liveFork,
    hugepages: opts.hugepages,
    prewarm: opts.prewarm,
  };
}

function sharesOf(opts: Options): Share[] | undefined {
  if (opts.shares) return opts.share;
  if (opts.share) throw usageError("--share and --no-shares exclude each other.");
  return [];
}

/** JSON: the sandboxes; with --per-item the outcomes */
function printForked(cli: Cli, results: ForkOutcome[], opts: Options): SandboxInfo[] {
  const sandboxes = results.flatMap((result) => ("sandbox" in result ? [result.sandbox] : []));
  const problems = results.flatMap((result) => ("error" in result ? [result.error] : []));
  if (problems.length > 0) cli.exitCode = EXIT_FAILURE;
  if (cli.json) {
    printJson(opts.perItem ? results : sandboxes);
    return sandboxes;
  }
  printWarnings(sandboxes);
  if (opts.quiet) for (const sandbox of sandboxes) printLine(sandbox.id);
  else if (sandboxes.length > 0) printForks(sandboxes);
  for (const problem of problems) printProblem(problem);
  return sandboxes;
}

/** Removes the sandboxes in any case, after Ctrl-C at once */
async function settle(cli: Cli, forkd: Controller, sandboxes: SandboxInfo[], secs: number): Promise<void> {
  printNote(`They end in ${secs} s.`);
  try {
    await sleep(secs * 1000, undefined, { signal: cli.signal });
  } finally {
    const signal = AbortSignal.timeout(KILL_MS);
    await Promise.all(sandboxes.map(async (sandbox) => forkd.killSandbox(sandbox.id, { signal })));
  }
}

// forkd project: the group of verbs about projects and their quotas.

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { forEach } from "../each.ts";
import { usageError } from "../errors.ts";
import { acceptQuota, quotaOf, shownLimit, type QuotaFlags } from "../options/quota.ts";
import { formatTime } from "../terminal/format.ts";
import { printJson, printLine, printTable } from "../terminal/output.ts";

import type { Cli } from "../cli.ts";

export function projectCommand(cli: Cli): Command {
  return new Command("project")
    .description("projects, which own sandboxes, snapshots and tokens: create, list, remove, set their quotas")
    .addCommand(createCommand(cli))
    .addCommand(lsCommand(cli))
    .addCommand(rmCommand(cli))
    .addCommand(setCommand(cli));
}

function createCommand(cli: Cli): Command {
  const command = new Command("create").description("make a project").argument("<name>", "its name");
  return acceptQuota(command)
    .option("--json", "print JSON")
    .action(async (name: string, opts: QuotaFlags) => {
      const forkd = await connect(cli);
      const project = await forkd.createProject(name, { ...quotaOf(opts), signal: cli.signal });
      if (cli.json) printJson(project);
      else printLine(`Project ${project.name} is ready; 'forkd token create NAME --project ${project.name}' makes a token for it.`);
    });
}

function lsCommand(cli: Cli): Command {
  return new Command("ls")
    .description("list the projects")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const projects = await forkd.listProjects({ signal: cli.signal });
      if (cli.json) printJson(projects);
      else if (opts.quiet) for (const project of projects) printLine(project.name);
      else
        printTable(projects, [
          { title: "NAME", value: (project) => project.name },
          { title: "SANDBOXES", value: ({ quota }) => shownLimit(quota.sandboxes), align: "right" },
          { title: "CPUS", value: ({ quota }) => shownLimit(quota.vcpus), align: "right" },
          { title: "MIB", value: ({ quota }) => shownLimit(quota.memory_mib), align: "right" },
          { title: "SNAPSHOTS", value: ({ quota }) => shownLimit(quota.snapshots), align: "right" },
          { title: "FORKS/MIN", value: ({ quota }) => shownLimit(quota.forks_per_minute), align: "right" },
          { title: "CREATED", value: (project) => formatTime(project.created_at_unix) },
        ]);
    });
}

function rmCommand(cli: Cli): Command {
  return new Command("rm")
    .description("remove projects that own nothing")
    .argument("<names...>", "names")
    .option("-q, --quiet", "print names only")
    .option("--json", "print JSON")
    .action(async (names: string[], opts: { quiet?: boolean }) => {
      const forkd = await connect(cli);
      const remove = async (name: string): Promise<unknown> => forkd.deleteProject(name, { signal: cli.signal });
      await forEach(cli, names, remove, { step: "Removing", done: "Removed %s.", quiet: opts.quiet });
    });
}

function setCommand(cli: Cli): Command {
  const command = new Command("set").description("change the quotas of a project; the others stay").argument("<name>", "its name");
  return acceptQuota(command)
    .option("--json", "print JSON")
    .action(async (name: string, opts: QuotaFlags) => {
      const quota = quotaOf(opts);
      if (Object.keys(quota).length === 0) throw usageError("Give a quota, such as --sandboxes 20 or --sandboxes none.");
      const forkd = await connect(cli);
      const project = await forkd.updateProject(name, { ...quota, signal: cli.signal });
      if (cli.json) printJson(project);
      else printLine(`The quotas of ${project.name} are set; 'forkd --project ${project.name} quota' shows them.`);
    });
}

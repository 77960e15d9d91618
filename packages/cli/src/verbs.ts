// Every verb: what the help says about it, and where it is. Its module is loaded when it is called, so the help stays fast.

import type { Command } from "commander";
import type { Cli } from "./cli.ts";

export type Verb = { name: string; about: string; load: () => Promise<(cli: Cli) => Command> };

export const VERB_GROUPS: { title: string; verbs: Verb[] }[] = [
  {
    title: "Start here:",
    verbs: [
      verb(
        "demo",
        "the whole idea in one run: fork 10, branch one in its work, fork 3",
        async () => (await import("./commands/demo.ts")).demoCommand,
      ),
      verb(
        "quickstart",
        "make a snapshot and fork it: sandboxes to play with",
        async () => (await import("./commands/quickstart.ts")).quickstartCommand,
      ),
      verb("run", "run one command in a new VM and leave nothing behind", async () => (await import("./commands/run.ts")).runCommand),
      verb(
        "doctor",
        "check this host, and how to mend what does not work",
        async () => (await import("./commands/doctor.ts")).doctorCommand,
      ),
    ],
  },
  {
    title: "Sandboxes:",
    verbs: [
      verb("fork", "fork a snapshot: n sandboxes that run at once", async () => (await import("./commands/fork.ts")).forkCommand),
      verb("ls", "list the sandboxes", async () => (await import("./commands/ls.ts")).lsCommand),
      verb("tree", "draw the lineage of snapshots and sandboxes", async () => (await import("./commands/tree.ts")).treeCommand),
      verb("inspect", "everything about one sandbox", async () => (await import("./commands/inspect.ts")).inspectCommand),
      verb("exec", "run a program in a sandbox", async () => (await import("./commands/exec.ts")).execCommand),
      verb("sh", "a shell in a sandbox, at this terminal", async () => (await import("./commands/sh.ts")).shCommand),
      verb("ps", "list the processes that run in a sandbox", async () => (await import("./commands/ps.ts")).psCommand),
      verb("attach", "watch a process that runs in a sandbox", async () => (await import("./commands/attach.ts")).attachCommand),
      verb("signal", "send a signal to a process in a sandbox", async () => (await import("./commands/signal.ts")).signalCommand),
      verb("eval", "run code in a sandbox's warm interpreter", async () => (await import("./commands/eval.ts")).evalCommand),
      verb(
        "context",
        "the interpreters of a sandbox: list, create, restart",
        async () => (await import("./commands/context.ts")).contextCommand,
      ),
      verb("ping", "one round trip to the agent of a sandbox", async () => (await import("./commands/ping.ts")).pingCommand),
      verb("cp", "copy files and folders into a sandbox or out of it", async () => (await import("./commands/cp.ts")).cpCommand),
      verb(
        "files",
        "the files of a sandbox: list, make, move, remove, watch",
        async () => (await import("./commands/files.ts")).filesCommand,
      ),
      verb("ports", "list what listens in a sandbox", async () => (await import("./commands/ports.ts")).portsCommand),
      verb("port", "make ports of a sandbox ports of this machine", async () => (await import("./commands/port.ts")).portCommand),
      verb(
        "preview",
        "a link that opens a server in a sandbox with any browser",
        async () => (await import("./commands/preview.ts")).previewCommand,
      ),
      verb("logs", "what the guest's console, the agent or the VMM wrote", async () => (await import("./commands/logs.ts")).logsCommand),
      verb("stats", "what every sandbox uses", async () => (await import("./commands/stats.ts")).statsCommand),
      verb("network", "what a sandbox may connect to, and what it did", async () => (await import("./commands/network.ts")).networkCommand),
      verb(
        "branch",
        "take a snapshot of a running sandbox, which goes on",
        async () => (await import("./commands/branch.ts")).branchCommand,
      ),
      verb("pause", "stop the CPUs of sandboxes; their memory stays", async () => (await import("./commands/pause.ts")).pauseCommand),
      verb("suspend", "put sandboxes to sleep: all of them on disk", async () => (await import("./commands/pause.ts")).suspendCommand),
      verb("resume", "let paused or suspended sandboxes go on", async () => (await import("./commands/pause.ts")).resumeCommand),
      verb("rename", "give a sandbox a name", async () => (await import("./commands/rename.ts")).renameCommand),
      verb("extend", "let a sandbox live longer", async () => (await import("./commands/extend.ts")).extendCommand),
      verb("kill", "end sandboxes", async () => (await import("./commands/kill.ts")).killCommand),
      verb(
        "workspace",
        "sandboxes with a name that sleep and go on",
        async () => (await import("./commands/workspace.ts")).workspaceCommand,
      ),
      verb("events", "follow every change of state", async () => (await import("./commands/events.ts")).eventsCommand),
    ],
  },
  {
    title: "Snapshots and images:",
    verbs: [
      verb("build", "build a recipe: a snapshot from a few lines of YAML", async () => (await import("./commands/build.ts")).buildCommand),
      verb("recipes", "what there is to build, and its tests", async () => (await import("./commands/recipes.ts")).recipesCommand),
      verb(
        "snapshot",
        "frozen warm VMs: create, list, remove, compact",
        async () => (await import("./commands/snapshot.ts")).snapshotCommand,
      ),
      verb("pack", "make one file of a snapshot, for another machine", async () => (await import("./commands/pack.ts")).packCommand),
      verb("unpack", "take in a snapshot from such a file", async () => (await import("./commands/unpack.ts")).unpackCommand),
      verb("key", "who signs packs, and whose are trusted", async () => (await import("./commands/key.ts")).keyCommand),
      verb("push", "send a snapshot to a registry, a web server or a file", async () => (await import("./commands/push.ts")).pushCommand),
      verb(
        "pull",
        "get a snapshot from a registry, a web server, a hub or a file",
        async () => (await import("./commands/pull.ts")).pullCommand,
      ),
      verb("hub", "list the snapshots of a hub", async () => (await import("./commands/hub.ts")).hubCommand),
      verb("image", "root file systems: build, pull, import, list, remove", async () => (await import("./commands/image.ts")).imageCommand),
    ],
  },
  {
    title: "The daemon:",
    verbs: [
      verb("up", "start the daemon", async () => (await import("./commands/up.ts")).upCommand),
      verb("down", "stop the daemon", async () => (await import("./commands/down.ts")).downCommand),
      verb("status", "whether it runs, and on what", async () => (await import("./commands/status.ts")).statusCommand),
      verb("config", "settings, and where each one comes from", async () => (await import("./commands/config.ts")).configCommand),
      verb("token", "who may use it over the network", async () => (await import("./commands/token.ts")).tokenCommand),
      verb("gc", "remove what nothing refers to", async () => (await import("./commands/gc.ts")).gcCommand),
    ],
  },
  {
    title: "More:",
    verbs: [
      verb(
        "mcp",
        "serve forkd to a model as MCP tools; install it in a client",
        async () => (await import("./commands/mcp.ts")).mcpCommand,
      ),
      verb(
        "bench",
        "measure this machine: fan-out, branch pause, call latency",
        async () => (await import("./commands/bench.ts")).benchCommand,
      ),
      verb("where", "print the paths that forkd uses", async () => (await import("./commands/where.ts")).whereCommand),
      verb(
        "completion",
        "print a completion script for your shell",
        async () => (await import("./commands/completion.ts")).completionCommand,
      ),
      verb(
        "version",
        "print the versions of forkd and of what it runs on",
        async () => (await import("./commands/version.ts")).versionCommand,
      ),
    ],
  },
  {
    title: "Other forms of the above:",
    verbs: [
      verb("spawn", "fork", async () => (await import("./commands/fork.ts")).spawnCommand),
      verb("images", "snapshot ls", async () => (await import("./commands/snapshot/ls.ts")).imagesCommand),
      verb("rmi", "snapshot rm", async () => (await import("./commands/snapshot/rm.ts")).rmiCommand),
      verb("snapshot-info", "snapshot info", async () => (await import("./commands/snapshot/info.ts")).snapshotInfoCommand),
      verb("snapshot-compact", "snapshot compact", async () => (await import("./commands/snapshot/compact.ts")).snapshotCompactCommand),
      verb(
        "snapshot-diff",
        "fork, exec, branch and kill in one",
        async () => (await import("./commands/snapshot-diff.ts")).snapshotDiffCommand,
      ),
      verb("from-image", "image pull and snapshot create in one", async () => (await import("./commands/from-image.ts")).fromImageCommand),
      verb("parent", "image pull", async () => (await import("./commands/parent.ts")).parentCommand),
      verb("cleanup", "gc, after asking", async () => (await import("./commands/cleanup.ts")).cleanupCommand),
    ],
  },
];

function verb(name: string, about: string, load: Verb["load"]): Verb {
  return { name, about, load };
}

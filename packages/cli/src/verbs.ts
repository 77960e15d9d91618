// All verbs: their help text and module. A module is loaded when its verb is called, which keeps the help fast.

import type { Command } from "commander";
import type { Cli } from "./cli.ts";

export type Verb = { name: string; about: string; load: () => Promise<(cli: Cli) => Command> };

export const VERB_GROUPS: { title: string; verbs: Verb[] }[] = [
  {
    title: "Start here:",
    verbs: [
      verb("demo", "boot a VM, fork 10, branch one at work, fork 3", async () => (await import("./commands/demo.ts")).demoCommand),
      verb("quickstart", "make a snapshot and fork it", async () => (await import("./commands/quickstart.ts")).quickstartCommand),
      verb("run", "run one command in a new VM, which is then removed", async () => (await import("./commands/run.ts")).runCommand),
      verb("doctor", "check this host, and print how to fix failures", async () => (await import("./commands/doctor.ts")).doctorCommand),
    ],
  },
  {
    title: "Sandboxes:",
    verbs: [
      verb("fork", "fork a snapshot into n running sandboxes", async () => (await import("./commands/fork.ts")).forkCommand),
      verb("ls", "list the sandboxes", async () => (await import("./commands/ls.ts")).lsCommand),
      verb("tree", "draw the lineage of snapshots and sandboxes", async () => (await import("./commands/tree.ts")).treeCommand),
      verb("top", "the tree, live, with usage and keys; of one sandbox: ps", async () => (await import("./commands/top.ts")).topCommand),
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
        "the files of a sandbox: list, create, move, remove, watch",
        async () => (await import("./commands/files.ts")).filesCommand,
      ),
      verb("ports", "list the listening ports of a sandbox", async () => (await import("./commands/ports.ts")).portsCommand),
      verb("port", "forward local ports to a sandbox", async () => (await import("./commands/port.ts")).portCommand),
      verb(
        "preview",
        "a link that opens a server in a sandbox with any browser",
        async () => (await import("./commands/preview.ts")).previewCommand,
      ),
      verb("logs", "print the log of the console, the agent or the VMM", async () => (await import("./commands/logs.ts")).logsCommand),
      verb("stats", "resource usage of the sandboxes", async () => (await import("./commands/stats.ts")).statsCommand),
      verb("network", "network policy and connections of a sandbox", async () => (await import("./commands/network.ts")).networkCommand),
      verb(
        "branch",
        "take a snapshot of a running sandbox, which continues",
        async () => (await import("./commands/branch.ts")).branchCommand,
      ),
      verb("pause", "stop the CPUs of sandboxes; their memory stays", async () => (await import("./commands/pause.ts")).pauseCommand),
      verb("suspend", "save sandboxes to disk and free their memory", async () => (await import("./commands/pause.ts")).suspendCommand),
      verb("resume", "continue paused or suspended sandboxes", async () => (await import("./commands/pause.ts")).resumeCommand),
      verb("rename", "give a sandbox a name", async () => (await import("./commands/rename.ts")).renameCommand),
      verb("extend", "change the time to live of a sandbox", async () => (await import("./commands/extend.ts")).extendCommand),
      verb("kill", "end sandboxes", async () => (await import("./commands/kill.ts")).killCommand),
      verb(
        "workspace",
        "named sandboxes that can be suspended and resumed",
        async () => (await import("./commands/workspace.ts")).workspaceCommand,
      ),
      verb("events", "follow every change of state", async () => (await import("./commands/events.ts")).eventsCommand),
    ],
  },
  {
    title: "Snapshots and images:",
    verbs: [
      verb("build", "build a recipe: a snapshot from a few lines of YAML", async () => (await import("./commands/build.ts")).buildCommand),
      verb("recipes", "list recipes, and run their tests", async () => (await import("./commands/recipes.ts")).recipesCommand),
      verb(
        "snapshot",
        "frozen warm VMs: create, list, remove, compact",
        async () => (await import("./commands/snapshot.ts")).snapshotCommand,
      ),
      verb("pack", "write a snapshot to one file, for another machine", async () => (await import("./commands/pack.ts")).packCommand),
      verb("unpack", "read a snapshot from such a file", async () => (await import("./commands/unpack.ts")).unpackCommand),
      verb("key", "keys that sign packs, and trusted keys", async () => (await import("./commands/key.ts")).keyCommand),
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
      verb("ui", "open the dashboard in a browser", async () => (await import("./commands/ui.ts")).uiCommand),
      verb("status", "state and limits of the daemon and its host", async () => (await import("./commands/status.ts")).statusCommand),
      verb("config", "settings, and the source of each", async () => (await import("./commands/config.ts")).configCommand),
      verb("token", "tokens for access over the network", async () => (await import("./commands/token.ts")).tokenCommand),
      verb("gateway", "serve several daemons as one cluster", async () => (await import("./commands/gateway.ts")).gatewayCommand),
      verb("cluster", "the nodes of a cluster", async () => (await import("./commands/cluster.ts")).clusterCommand),
      verb("gc", "remove unreferenced files", async () => (await import("./commands/gc.ts")).gcCommand),
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
      verb(
        "uninstall",
        "remove all your data of forkd on this machine",
        async () => (await import("./commands/uninstall.ts")).uninstallCommand,
      ),
      verb("where", "print the paths that forkd uses", async () => (await import("./commands/where.ts")).whereCommand),
      verb(
        "completion",
        "print a completion script for your shell",
        async () => (await import("./commands/completion.ts")).completionCommand,
      ),
      verb("version", "print the versions of forkd and Node", async () => (await import("./commands/version.ts")).versionCommand),
    ],
  },
  {
    title: "Other forms of the above:",
    verbs: [
      verb("spawn", "fork", async () => (await import("./commands/fork.ts")).spawnCommand),
      verb("rm", "kill", async () => (await import("./commands/kill.ts")).rmCommand),
      verb("delete", "kill", async () => (await import("./commands/kill.ts")).deleteCommand),
      verb("stop", "suspend", async () => (await import("./commands/pause.ts")).stopCommand),
      verb("start", "resume", async () => (await import("./commands/pause.ts")).startCommand),
      verb("shell", "sh", async () => (await import("./commands/sh.ts")).shellCommand),
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

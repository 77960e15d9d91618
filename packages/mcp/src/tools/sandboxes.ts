// Tools about whole sandboxes.

import * as z from "zod";
import { description, full, metadata, networkOf, newSandbox, paging, sandboxId, sandboxView, snapshotView } from "../fields.ts";
import { badRequest } from "../errors.ts";
import { OWNER_KEY, type OwnerFields } from "../owner.ts";
import { tool, type Tool } from "../tool.ts";

/** Without a key the daemon cancels a creation when the call is cancelled; with one it would complete it */
const ABORTABLE = { idempotencyKey: null } as const;
const MAX_NODES = 500;

const count = z.int().min(1).max(1000).default(1).describe("How many");

export const sandboxTools: Tool[] = [
  tool({
    name: "spawn_sandboxes",
    title: "Fork a snapshot into sandboxes",
    kind: "write",
    description:
      "Makes n sandboxes from a snapshot: each is a Linux virtual machine of its own that starts in the middle of its life, with the snapshot's programs running and its libraries loaded. " +
      "A fork takes a fraction of a second and no memory until it writes, so one per attempt, per test or per file is cheap. " +
      "Sandboxes see neither this machine nor each other, and have no network unless the snapshot or `network` says so. " +
      "All or none: when there is no room for n, nothing is made. They end with this connection unless `keep` is true; kill_sandbox ends one earlier and frees its memory.",
    input: z.strictObject({
      snapshot_tag: z.string().describe("Tag of a snapshot, from list_snapshots"),
      n: count,
      name: z.string().optional().describe("Name for it, only with n = 1"),
      ...newSandbox,
      per_child_netns: z.boolean().optional().describe("Of an older API, without effect"),
      prewarm: z.boolean().optional().describe("Of an older API, without effect"),
      live_fork: z.boolean().optional().describe("Of an older API, without effect"),
    }),
    run: async (args, { forkd, signal, owner }) => {
      const options = {
        n: args.n,
        ...(args.name === undefined ? {} : { name: args.name }),
        memoryLimitMib: args.memory_limit_mib,
        env: args.env,
        ...networkOf(args.network),
        perChildNetns: args.per_child_netns,
        prewarm: args.prewarm,
        liveFork: args.live_fork,
        ...ABORTABLE,
        signal,
      };
      const made = await owner.make(async (fields) => forkd.spawnSandboxes(args.snapshot_tag, { ...options, ...lifeOf(args, fields) }));
      return { sandboxes: made.map((sandbox) => sandboxView(sandbox, args.full)) };
    },
  }),

  tool({
    name: "fork_sandbox",
    title: "Fork a running sandbox",
    kind: "write",
    description:
      "Copies a running sandbox n times, as it is now: memory, files, running processes. The original continues after a pause of milliseconds. " +
      "Use it when a sandbox has reached a state that was expensive to reach (installed, logged in, data loaded, a bug reproduced) and you want to try several continuations, or keep a way back before a risky step. " +
      "Costs the memory and disk of what the original changed since it was made; a copy costs what it changes itself. " +
      "The copies end with this connection unless `keep` is true. To come back to a state later or often, use branch_sandbox, which gives it a tag.",
    input: z.strictObject({ sandbox_id: sandboxId, n: count, ...newSandbox }),
    run: async (args, { forkd, signal, owner }) => {
      const { n, memory_limit_mib: memoryLimitMib, env } = args;
      const options = { n, memoryLimitMib, env, ...networkOf(args.network), ...ABORTABLE, signal };
      const made = await owner.make(async (fields) => forkd.forkSandbox(args.sandbox_id, { ...options, ...lifeOf(args, fields) }));
      return args.full ? made : { sandboxes: made.sandboxes.map((sandbox) => sandboxView(sandbox, false)) };
    },
  }),

  tool({
    name: "branch_sandbox",
    title: "Take a snapshot of a running sandbox",
    kind: "write",
    description:
      "Takes a snapshot of a running sandbox, which continues after a pause of milliseconds. The snapshot has a tag and can be forked with spawn_sandboxes as often as you like, also days later. " +
      "Branch before a step that may spoil the state, and after work that you do not want to do again. Stores only the pages of memory and disk that changed since the sandbox's own snapshot. " +
      "A snapshot stays until delete_snapshot: it does not end with this connection. For copies that are needed only now, fork_sandbox leaves nothing to clean up.",
    input: z.strictObject({
      sandbox_id: sandboxId,
      tag: z.string().optional().describe("Tag for the snapshot; without it, one is generated"),
      description,
      metadata,
      wait: z.boolean().default(true).describe("false: answer as soon as the sandbox runs again, while the snapshot is still written"),
      hold: z.boolean().optional().describe("Freeze its processes meanwhile, and in forks until clock and randomness are the fork's own"),
      mode: z.enum(["full", "diff", "live"]).optional().describe("Of an older API: all three are the same"),
      diff: z.boolean().optional().describe("Of an older API, without effect"),
      measure_diff: z.boolean().optional().describe("Of an older API, without effect"),
      full,
    }),
    run: async ({ sandbox_id: id, measure_diff: measureDiff, full: isFull, ...rest }, { forkd, signal }) =>
      snapshotView(await forkd.branchSandbox(id, { ...rest, measureDiff, ...ABORTABLE, signal }), isFull),
  }),

  tool({
    name: "list_sandboxes",
    title: "List sandboxes",
    kind: "read",
    description:
      "Sandboxes that run, are paused or suspended, also those of other clients and of the user. Yours have this connection's id in their metadata.",
    input: z.strictObject({
      snapshot_tag: z.string().optional().describe("Only forks of this snapshot"),
      state: z
        .array(z.enum(["running", "paused", "suspended", "ended", "lost"]))
        .optional()
        .describe("Without it, running, paused and suspended"),
      metadata: z.record(z.string(), z.string()).optional().describe("Only those that have all of these labels"),
      ...paging,
      full,
    }),
    run: async ({ snapshot_tag: tag, state, metadata: labels, limit, cursor, full: isFull }, { forkd, signal }) => {
      const page = await forkd.listSandboxes({ tag, state, metadata: labels, limit, cursor, signal });
      return { sandboxes: page.map((sandbox) => sandboxView(sandbox, isFull)), next_cursor: page.nextCursor };
    },
  }),

  tool({
    name: "get_sandbox",
    title: "Everything about one sandbox",
    kind: "read",
    description: "Every field of one sandbox: state, limits, network, when it ends, and what was checked when it was forked.",
    input: z.strictObject({ sandbox_id: sandboxId }),
    run: async ({ sandbox_id: id }, { forkd, signal }) => forkd.getSandbox(id, { signal }),
  }),

  tool({
    name: "keep_sandbox",
    title: "Let a sandbox outlive this connection",
    kind: "write",
    description:
      "Unties a sandbox from this connection: it stays until it is killed, or for ttl_secs. Do this only when the user will continue with it, and give them its id or name.",
    input: z.strictObject({
      sandbox_id: sandboxId,
      name: z.string().optional().describe("A name for it, easier to remember than its id"),
      ttl_secs: z.int().min(1).optional().describe("Seconds after which it ends; without it, never"),
    }),
    run: async ({ sandbox_id: id, name, ttl_secs: ttlSecs = null }, { forkd, signal }) => {
      const { [OWNER_KEY]: _owner, ...labels } = (await forkd.getSandbox(id, { signal })).metadata;
      const kept = await forkd.updateSandbox(id, { name, metadata: labels, ttlSecs, idleTimeoutSecs: null, signal });
      return sandboxView(kept, false);
    },
  }),

  tool({
    name: "kill_sandbox",
    title: "End a sandbox",
    kind: "destroy",
    description:
      "Ends a sandbox at once: its processes, memory and files are lost. Snapshots taken of it stay. Kill what you no longer need, it frees memory for other attempts.",
    input: z.strictObject({ sandbox_id: sandboxId }),
    run: async ({ sandbox_id: id }, { forkd, signal }) => {
      await forkd.killSandbox(id, { signal });
      return { killed: id };
    },
  }),

  tool({
    name: "ping_sandbox",
    title: "Check that a sandbox answers",
    kind: "read",
    description: "One round trip into a sandbox. A new sandbox answers at once, so there is no need to wait for it with this.",
    input: z.strictObject({ sandbox_id: sandboxId }),
    run: async ({ sandbox_id: id }, { forkd, signal }) => forkd.pingSandbox(id, { signal }),
  }),

  tool({
    name: "get_tree",
    title: "The lineage of snapshots and sandboxes",
    kind: "read",
    description:
      "Which snapshot was branched from which sandbox, and which sandboxes are forks of which snapshot. To find your way back to an earlier state.",
    input: z.strictObject({}),
    run: async (_args, { forkd, signal }) => {
      const { roots } = await forkd.tree({ signal });
      const room = { nodes: MAX_NODES };
      const cutRoots = roots.flatMap((root) => pruned(root, room));
      return { roots: cutRoots, ...(room.nodes < 0 ? { truncated: true } : {}) };
    },
  }),
];

type Life = { keep: boolean; ttl_secs?: number | undefined; metadata?: Record<string, string> | undefined };

/** Fields that tie a new sandbox to its owner; for a kept sandbox only the requested ones */
function lifeOf({ keep, ttl_secs: ttlSecs, metadata: labels }: Life, owned: OwnerFields): OwnerFields {
  if (keep) return { metadata: labels ?? {}, ...(ttlSecs === undefined ? {} : { ttlSecs }) };
  if (ttlSecs !== undefined)
    throw badRequest(
      "ttl_secs needs keep: a sandbox that is not kept lives as long as this connection.",
      "Set keep to true, or leave ttl_secs out.",
    );
  return { ...owned, metadata: { ...labels, ...owned.metadata } };
}

type Node = { sandboxes: readonly unknown[]; snapshots: readonly Node[] };

/** The first nodes of a tree of any size */
function pruned<N extends Node>(node: N, room: { nodes: number }): N[] {
  if (--room.nodes < 0) return [];
  const sandboxes = node.sandboxes.filter(() => --room.nodes >= 0);
  return [{ ...node, sandboxes, snapshots: node.snapshots.flatMap((child) => pruned(child, room)) }];
}

// Tools about snapshots and images.

import * as z from "zod";
import { description, env, full, metadata, network, networkOf, paging, snapshotView } from "../fields.ts";
import { tool, type Tool } from "../tool.ts";

const tag = z.string().describe("Tag of a snapshot");

export const snapshotTools: Tool[] = [
  tool({
    name: "list_snapshots",
    title: "List snapshots",
    kind: "read",
    description:
      "Snapshots that sandboxes can be forked from. Start here: choose one whose kernels (warm interpreters for eval_code) and image fit, and give its tag to spawn_sandboxes. When there is none, make one with create_snapshot.",
    input: z.strictObject({
      status: z.enum(["writing", "ready", "failed"]).optional().describe("Only those; a snapshot can be forked when it is ready"),
      metadata: z.record(z.string(), z.string()).optional().describe("Only those that have all of these labels"),
      ...paging,
      full,
    }),
    run: async ({ full: isFull, ...filters }, { forkd, signal }) => {
      const page = await forkd.listSnapshots({ ...filters, signal });
      return { snapshots: page.map((snapshot) => snapshotView(snapshot, isFull)), next_cursor: page.nextCursor };
    },
  }),

  tool({
    name: "create_snapshot",
    title: "Boot, warm and freeze a machine",
    kind: "write",
    description:
      "Boots an image, runs your preparation steps, and freezes it as a snapshot. Takes seconds to minutes, so do it once per environment and not per task: afterwards every fork starts warm. " +
      "To add to an existing snapshot, spawn a sandbox, change it and use branch_sandbox: that is faster. Stays until delete_snapshot. Needs a token of scope admin where the daemon is reached over the network.",
    input: z.strictObject({
      tag: z.string().describe("Tag for the new snapshot; must not exist yet"),
      image: z.string().optional().describe("Name of an image, from list_images; without it, the daemon's default image"),
      memory_mib: z.int().min(1).optional().describe("Memory of the machine and of each fork"),
      vcpus: z.int().min(1).optional(),
      cpu: z.string().optional().describe("baseline (runs on every host), host, or a CPU model; default: the best that the host has"),
      hugepages: z.boolean().optional().describe("Map the memory in huge pages"),
      disk_mib: z.int().min(1).optional().describe("Size of the writable disk; without it, files take the guest's memory"),
      warm_up: z
        .strictObject({
          exec: z.array(z.array(z.string()).min(1)).optional().describe("Programs in order; each must exit with 0"),
          kernels: z
            .array(z.strictObject({ language: z.enum(["python", "node"]), code: z.string().optional() }))
            .optional()
            .describe("Interpreters to keep warm for eval_code, with code that imports what you need"),
          timeout_secs: z.number().positive().optional().describe("For each program and each code"),
        })
        .optional()
        .describe("Without it, a python interpreter where the image has python3"),
      description,
      env,
      metadata,
      network,
      full,
      kernel: z.string().optional().describe("Of an older API: refused without image, else without effect"),
      rootfs: z.string().optional().describe("Of an older API: refused without image, else without effect"),
      rw: z.boolean().optional().describe("Of an older API, without effect"),
      tap: z.string().optional().describe("Of an older API, without effect"),
      boot_wait_secs: z.number().optional().describe("Of an older API, without effect"),
    }),
    run: async (args, { forkd, signal, progress }) => {
      const { tag: name, memory_mib: memoryMib, disk_mib: diskMib, warm_up: warmUp, boot_wait_secs: bootWaitSecs, full: isFull } = args;
      const { network: connects, memory_mib: _m, disk_mib: _d, warm_up: _w, boot_wait_secs: _b, full: _f, tag: _t, ...same } = args;
      const { timeout_secs: timeoutSecs, ...steps } = warmUp ?? {};
      const made = await forkd.createSnapshot(name, {
        ...same,
        memoryMib,
        diskMib,
        bootWaitSecs,
        ...(warmUp ? { warmUp: { ...steps, timeoutSecs } } : {}),
        ...networkOf(connects),
        idempotencyKey: null,
        onProgress: ({ step }) => progress(step),
        signal,
      });
      return snapshotView(made, isFull);
    },
  }),

  tool({
    name: "snapshot_info",
    title: "Sizes and lineage of a snapshot",
    kind: "read",
    description: "Disk usage of a snapshot, the snapshots it builds on, and what depends on it and so prevents its deletion.",
    input: z.strictObject({ tag }),
    run: async ({ tag: name }, { forkd, signal }) => forkd.snapshotInfo(name, { signal }),
  }),

  tool({
    name: "delete_snapshot",
    title: "Remove a snapshot",
    kind: "destroy",
    description:
      "Removes a snapshot for good. Clean up the snapshots that you made with branch_sandbox or create_snapshot once they are no longer needed; never remove others without being asked to. " +
      "Refused while something depends on it; the error names what does. Needs a token of scope admin where the daemon is reached over the network.",
    input: z.strictObject({
      tag,
      cascade: z.boolean().default(false).describe("Also removes the snapshots that build on it"),
      force: z.boolean().default(false).describe("Remove the tag now, and the data when nothing needs it"),
    }),
    run: async ({ tag: name, cascade, force }, { forkd, signal }) => {
      await forkd.deleteSnapshot(name, { ...(cascade ? { cascade } : {}), ...(force ? { force } : {}), signal });
      return { deleted: name };
    },
  }),

  tool({
    name: "list_images",
    title: "List images",
    kind: "read",
    description:
      "Root file systems that create_snapshot can boot. New ones are made by the user with 'forkd image build' or 'forkd image pull'.",
    input: z.strictObject({ full }),
    run: async ({ full: isFull }, { forkd, signal }) => {
      const images = await forkd.listImages({ signal });
      return {
        images: isFull ? images : images.map(({ names, architecture, bytes, created_at }) => ({ names, architecture, bytes, created_at })),
      };
    },
  }),
];

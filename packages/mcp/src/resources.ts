// Resources: sandboxes, snapshots and the tree, as JSON.

import { ResourceNotFoundError, ResourceTemplate } from "@modelcontextprotocol/server";
import { NotFoundError } from "forkd";
import { sandboxView, snapshotView } from "./fields.ts";
import type { McpServer, ServerContext } from "@modelcontextprotocol/server";
import type { Controller } from "forkd";

/** Limit of entries in a list */
const MAX_LISTED = 200;
const TYPE = "application/json";

type Contents = { contents: { uri: string; mimeType: string; text: string }[] };
type Read = (forkd: Controller, signal: AbortSignal) => Promise<unknown>;

export function registerResources(server: McpServer, connect: () => Promise<Controller>): void {
  const read = async (uri: URL, ctx: ServerContext, get: Read): Promise<Contents> => {
    try {
      const value = await get(await connect(), ctx.mcpReq.signal);
      return { contents: [{ uri: uri.href, mimeType: TYPE, text: JSON.stringify(value) }] };
    } catch (error) {
      if (error instanceof NotFoundError) throw new ResourceNotFoundError(uri.href, error.message);
      throw error;
    }
  };
  const listOf = async (forkd: Controller, signal: AbortSignal): Promise<unknown> =>
    (await forkd.listSandboxes({ limit: MAX_LISTED, signal })).map((sandbox) => sandboxView(sandbox, false));
  const snapshots = async (forkd: Controller, signal: AbortSignal): Promise<unknown> =>
    (await forkd.listSnapshots({ limit: MAX_LISTED, signal })).map((snapshot) => snapshotView(snapshot, false));

  const about = (title: string, description: string): { title: string; description: string; mimeType: string } => ({
    title,
    description,
    mimeType: TYPE,
  });
  server.registerResource(
    "sandboxes",
    "forkd://sandboxes",
    about("Sandboxes", "Those that run, are paused or suspended"),
    async (uri, ctx) => read(uri, ctx, listOf),
  );
  server.registerResource("snapshots", "forkd://snapshots", about("Snapshots", "What sandboxes can be forked from"), async (uri, ctx) =>
    read(uri, ctx, snapshots),
  );
  server.registerResource("tree", "forkd://tree", about("Tree", "The lineage of snapshots and sandboxes"), async (uri, ctx) =>
    read(uri, ctx, async (forkd, signal) => forkd.tree({ signal })),
  );
  server.registerResource(
    "sandbox",
    new ResourceTemplate("forkd://sandboxes/{id}", { list: undefined }),
    about("One sandbox", "Every field of it"),
    async (uri, { id }, ctx) => read(uri, ctx, async (forkd, signal) => forkd.getSandbox(String(id), { signal })),
  );
  server.registerResource(
    "snapshot",
    new ResourceTemplate("forkd://snapshots/{tag}", { list: undefined }),
    about("One snapshot", "Every field of it"),
    async (uri, { tag }, ctx) => read(uri, ctx, async (forkd, signal) => forkd.getSnapshot(String(tag), { signal })),
  );
}

// The MCP server of one connection: all tools and resources of one daemon.

import { McpServer } from "@modelcontextprotocol/server";
import { badRequest, problemOf } from "./errors.ts";
import { heartbeat, reporter } from "./progress.ts";
import { registerResources } from "./resources.ts";
import { INSTRUCTIONS, TOOLS } from "./tools.ts";
import type { ServerContext } from "@modelcontextprotocol/server";
import type { Controller } from "forkd";
import type { Owner } from "./owner.ts";
import type { Kind, Tool } from "./tool.ts";

/** Limit of an answer: names and escaped control characters of a guest can make few entries long */
const MAX_ANSWER = 2 * 1024 * 1024;

export type ServerOptions = {
  version: string;
  /** Called for each request, so that a daemon that ended is started again */
  connect: () => Promise<Controller>;
  owner: Owner;
};

type Result = { content: { type: "text"; text: string }[]; isError?: true };

export function createServer(opts: ServerOptions): McpServer {
  const server = new McpServer(
    { name: "forkd", title: "forkd: fork() for virtual machines", version: opts.version },
    { instructions: INSTRUCTIONS },
  );
  for (const tool of TOOLS) {
    const { name, title, description, kind, input } = tool;
    server.registerTool(name, { title, description, inputSchema: input, annotations: hints(kind) }, async (args, ctx) =>
      answer(tool, args, ctx, opts),
    );
  }
  registerResources(server, opts.connect);
  return server;
}

/** One JSON value, so that output of a guest cannot imitate the server's fields */
async function answer(tool: Tool, args: unknown, ctx: ServerContext, { connect, owner }: ServerOptions): Promise<Result> {
  const { signal } = ctx.mcpReq;
  const progress = reporter(ctx);
  const beats = heartbeat(progress);
  try {
    const forkd = await connect();
    const value = await tool.run(args as never, { forkd, signal, progress, owner });
    const text = JSON.stringify(value);
    if (text.length > MAX_ANSWER) throw badRequest(`The answer is too long: it has ${text.length} characters.`, "Ask for less at a time.");
    return { content: [{ type: "text", text }] };
  } catch (error) {
    // the client does not wait for the answer to a cancelled call
    if (signal.aborted) throw error;
    return { content: [{ type: "text", text: JSON.stringify(problemOf(error)) }], isError: true };
  } finally {
    beats[Symbol.dispose]();
  }
}

function hints(kind: Kind): { readOnlyHint: boolean; destructiveHint: boolean; openWorldHint: boolean } {
  return { readOnlyHint: kind === "read", destructiveHint: kind === "destroy", openWorldHint: false };
}

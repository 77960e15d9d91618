// Configuration files of MCP clients on Linux. All four have an object `mcpServers`.

import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { usageError } from "../errors.ts";

export const MCP_CLIENTS = ["claude-desktop", "claude-code", "cursor", "cline"] as const;

export type McpClient = (typeof MCP_CLIENTS)[number];

type Where = { project?: boolean; env?: NodeJS.ProcessEnv; home?: string; cwd?: string };

export function configFile(
  client: McpClient,
  { project = false, env = process.env, home = homedir(), cwd = process.cwd() }: Where = {},
): string {
  const config = env["XDG_CONFIG_HOME"] || join(home, ".config");
  if (project) {
    if (client === "claude-code") return resolve(cwd, ".mcp.json");
    if (client === "cursor") return resolve(cwd, ".cursor", "mcp.json");
    throw usageError(`${client} has no configuration for single projects`);
  }
  switch (client) {
    case "claude-desktop":
      return join(config, "Claude", "claude_desktop_config.json");
    case "claude-code":
      return join(env["CLAUDE_CONFIG_DIR"] || home, ".claude.json");
    case "cursor":
      return join(home, ".cursor", "mcp.json");
    case "cline":
      return join(config, "Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json");
  }
}

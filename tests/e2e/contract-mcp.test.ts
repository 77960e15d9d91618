// The contract through the MCP server.

import assert from "node:assert/strict";
import { it } from "node:test";
import { routes, type RouteName } from "../../packages/daemon/src/api/routes.ts";
import { contractBy } from "../contract/by-driver.ts";
import { WITHOUT_TOOL } from "../contract/left-out.ts";
import { mcpDriver, USED_BY_TOOL } from "../contract/mcp-driver.ts";

contractBy(mcpDriver, { cannotStop: true });

it("every route has a tool or a stated reason for having none", () => {
  const untold = (Object.keys(routes) as RouteName[]).filter((route) => USED_BY_TOOL.has(route) === route in WITHOUT_TOOL);
  assert.deepEqual(untold, [], "no tool and no reason, or both");
});

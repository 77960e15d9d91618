// The MCP server: everything this package exports.

export { HttpServer } from "./http.ts";
export { serveOverStdio } from "./stdio.ts";
export { isLoopback } from "./web.ts";

// Contract driver for MCP tools, with the official client. Requests without a tool use the SDK, because later cases
// depend on them.

import assert from "node:assert/strict";
import { ResourceNotFoundError } from "@modelcontextprotocol/client";
import { TOOLS } from "../../packages/mcp/src/tools.ts";
import { ask, NEWEST, overStdio, type Answer } from "../helpers/mcp.ts";
import { sdkDriver } from "./sdk-driver.ts";
import type { Client } from "@modelcontextprotocol/client";
import type { RouteName } from "../../packages/daemon/src/api/routes.ts";
import type { TestDaemon } from "../helpers/daemon.ts";
import type { Args, Driver, Outcome } from "./case.ts";

type Said = Required<Pick<Args, "params" | "query" | "body">> & Args;
type Fields = Record<string, unknown>;
type Line =
  | { tool: string; args: Fields; value?: (answer: Fields) => unknown; next?: (answer: Fields) => Fields | undefined }
  | { uri: string };
type Lines = { [N in RouteName]?: (said: Said) => Line | undefined };

/** Routes that were reached through a tool or a resource */
export const USED_BY_TOOL = new Set<RouteName>();

export function mcpDriver(daemon: TestDaemon): Driver {
  const sdk = sdkDriver(daemon);
  let client: Promise<Client> | undefined;
  return {
    name: "mcp",
    call: async (route, args) => {
      const line = isPlain(args) ? LINES[route]?.({ params: {}, query: {}, body: {}, ...args }) : undefined;
      if (line === undefined || !isSayable(line)) return sdk.call(route, args);
      USED_BY_TOOL.add(route);
      client ??= overStdio(daemon, NEWEST);
      return "uri" in line ? read(await client, line.uri) : run(await client, line);
    },
    close: async () => (await client)?.close(),
  };
}

const isPlain = ({ token, headers }: Args): boolean => token === undefined && headers === undefined;

/** Whether the tool supports all these arguments */
function isSayable(line: Line): boolean {
  if ("uri" in line) return true;
  const tool = TOOLS.find(({ name }) => name === line.tool);
  assert.ok(tool, line.tool);
  const { allow = [] } = (line.args["network"] ?? {}) as { allow?: string[] };
  // the tools do not accept IP addresses in network rules
  return Object.keys(line.args).every((name) => name in tool.input.shape) && !allow.some((rule) => /^\[|^[\d.]+(\/|:|$)/.test(rule));
}

async function run(client: Client, line: Exclude<Line, { uri: string }>): Promise<Outcome> {
  const { tool, args, value = () => null } = line;
  const pages: Fields[] = [];
  for (let more: Fields | undefined = args; more !== undefined;) {
    const answer = await ask(client, tool, more);
    if (answer.isError) return failureOf(answer);
    pages.push(answer.value);
    more = line.next?.(answer.value);
    if (more) more = { ...args, ...more };
  }
  const whole = pages.length === 1 ? (pages[0] ?? {}) : joined(pages);
  return { value: value(whole), next: (whole["next_cursor"] as string | undefined) ?? null };
}

/** Joins the text of all pages; other fields come from the last page */
function joined(pages: readonly Fields[]): Fields {
  const all = (name: string): string => pages.map((page) => page[name] as string).join("");
  return { ...pages.at(-1), stdout: all("stdout"), stderr: all("stderr") };
}

function failureOf({ value }: Answer): Outcome {
  // arguments that the schema rejects do not reach the tool
  const { error, code, hint, details, text } = value as { error?: string; code?: string; hint?: string; details?: unknown; text?: string };
  if (text !== undefined) return { code: "BAD_REQUEST", message: text };
  assert.ok(error && code && hint, `an error without words: ${JSON.stringify(value)}`);
  return { code, message: error, details };
}

async function read(client: Client, uri: string): Promise<Outcome> {
  try {
    const [content] = (await client.readResource({ uri })).contents;
    assert.ok(content && "text" in content);
    return { value: JSON.parse(content.text) as unknown };
  } catch (error) {
    if (!(error instanceof ResourceNotFoundError)) throw error;
    return { code: "NOT_FOUND", message: error.message };
  }
}

const FULL = { full: true };
const ALL = { limit: 200 };

const LINES: Lines = {
  getTree: () => ({ tool: "get_tree", args: {}, value: same }),
  listImages: () => ({ tool: "list_images", args: FULL, value: ({ images }) => images }),
  listSnapshots: ({ query }) => ({
    tool: "list_snapshots",
    args: { ...ALL, ...filters(query), ...FULL },
    value: (answer) => answer["snapshots"],
  }),
  listRecipes: () => ({ tool: "list_recipes", args: {}, value: ({ recipes }) => recipes }),
  buildRecipe: ({ query, body }) =>
    body["source"] === undefined ? { tool: "build_recipe", args: { ...query, ...FULL }, value: same } : undefined,
  createSnapshot: ({ body }) => ({ tool: "create_snapshot", args: { ...body, ...FULL }, value: same }),
  getSnapshot: ({ params }) => ({ uri: `forkd://snapshots/${params["tag"]}` }),
  getSnapshotDetails: ({ params }) => ({ tool: "snapshot_info", args: params, value: same }),
  deleteSnapshot: ({ params, query }) => ({ tool: "delete_snapshot", args: { ...params, ...query } }),

  listSandboxes: ({ query: { tag, state, ...rest } }) => ({
    tool: "list_sandboxes",
    args: {
      ...ALL,
      ...filters(rest),
      ...(tag === undefined ? {} : { snapshot_tag: tag }),
      ...(state === undefined ? {} : { state: String(state).split(",") }),
      ...FULL,
    },
    value: (answer) => answer["sandboxes"],
  }),
  createSandboxes: ({ body }) => ({ tool: "spawn_sandboxes", args: { ...body, keep: true, ...FULL }, value: ({ sandboxes }) => sandboxes }),
  getSandbox: ({ params }) => ({ tool: "get_sandbox", args: inSandbox(params), value: same }),
  deleteSandbox: ({ params }) => ({ tool: "kill_sandbox", args: inSandbox(params) }),
  pingSandbox: ({ params }) => ({ tool: "ping_sandbox", args: inSandbox(params), value: same }),
  execCommand: ({ params, body }) => ({ tool: "exec_command", args: { ...inSandbox(params), ...body }, value: same }),
  evalCode: ({ params, body }) => ({ tool: "eval_code", args: { ...inSandbox(params), ...body }, value: same }),
  branchSandbox: ({ params, body }) => ({ tool: "branch_sandbox", args: { ...inSandbox(params), ...body, ...FULL }, value: same }),
  forkSandbox: ({ params, body }) => ({ tool: "fork_sandbox", args: { ...inSandbox(params), ...body, keep: true, ...FULL }, value: same }),

  readFile: ({ params, query }) => ({
    tool: "read_file",
    args: { ...inSandbox(params), ...query },
    value: ({ content, encoding }) => Buffer.from(String(content), encoding as BufferEncoding),
  }),
  writeFile: ({ params, query: { parents, ...rest }, bytes = Buffer.alloc(0) }) =>
    parents === true
      ? { tool: "write_file", args: { ...inSandbox(params), ...rest, content: bytes.toString("base64"), encoding: "base64" }, value: same }
      : undefined,
  listFiles: ({ params, query }) => ({
    tool: "list_files",
    args: { ...inSandbox(params), ...ALL, ...query, ...FULL },
    value: ({ files }) => files,
  }),
  removeFile: ({ params, query }) => ({ tool: "remove_file", args: { ...inSandbox(params), ...query } }),

  listPorts: ({ params: { port: _port, path: _path, ...params } }) => ({
    tool: "list_ports",
    args: inSandbox(params),
    value: ({ ports }) => ports,
  }),
  createPreview: ({ params: { port, path: _path, ...params }, body }) => ({
    tool: "create_preview",
    args: { ...inSandbox(params), port: Number(port), ...body },
    value: (answer) => ({ ...answer, token: new URL(String(answer["url"])).searchParams.get("forkd_preview") }),
  }),
  proxyRequest: ({ params: { port, path, ...params }, query, bytes }) => ({
    tool: "http_request",
    args: {
      ...inSandbox(params),
      port: Number(port),
      path: `/${path}?${new URLSearchParams(query as Record<string, string>).toString()}`,
      ...(bytes === undefined ? {} : { method: "POST", body: bytes.toString() }),
    },
    value: ({ body }) => body,
  }),

  startProcess: ({ params, body }) => ({ tool: "start_process", args: { ...inSandbox(params), ...body, ...FULL }, value: same }),
  listProcesses: ({ params }) => ({ tool: "list_processes", args: { ...inSandbox(params), ...FULL }, value: ({ processes }) => processes }),
  killProcess: ({ params }) => ({ tool: "signal_process", args: { ...inProcess(params), signal: "SIGKILL" } }),
  signalProcess: ({ params, body }) => ({ tool: "signal_process", args: { ...inProcess(params), ...body } }),
  writeStdin: ({ params, query, bytes }) => ({
    tool: "write_stdin",
    args: { ...inProcess(params), ...query, text: (bytes ?? Buffer.alloc(0)).toString() },
  }),
  watchProcess: ({ params, query: { stdout_from: stdout = 0, stderr_from: stderr = 0 } }) => ({
    tool: "read_output",
    args: { ...inProcess(params), cursor: stdout === "now" ? "now" : `${String(stdout)}-${String(stderr)}`, wait_secs: 60 },
    next: ({ state, more, next_cursor: cursor }) => (state === "ended" && more === false ? undefined : { cursor }),
    value: same,
  }),
};

function same(answer: Fields): unknown {
  return answer;
}

function inSandbox({ id, ...rest }: Record<string, string>): Fields {
  return { sandbox_id: id, ...rest };
}

function inProcess({ id, process }: Record<string, string>): Fields {
  return { sandbox_id: id, process };
}

function filters({ metadata, ...rest }: Said["query"]): Fields {
  if (metadata === undefined) return rest;
  const entries = [metadata].flat().map((pair) => String(pair).split("=") as [string, string]);
  return { ...rest, metadata: Object.fromEntries(entries) };
}

// Contract driver for the CLI: cases as command lines with JSON output.

import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { forkdBinary, forkdProcess } from "../../packages/cli/test/helpers.ts";
import { packLines } from "./cli-packs.ts";
import { recipeLines } from "./cli-recipes.ts";
import { as, flags, fromTo, network, options, orNever, ownerOf, pairs, place, repeated, sharesOf, text, when } from "./words.ts";
import type { RouteName } from "../../packages/daemon/src/api/routes.ts";
import type { BinaryResult as CliResult } from "../../packages/cli/test/helpers.ts";
import type { TestDaemon } from "../helpers/daemon.ts";
import type { Args, Driver, Outcome } from "./case.ts";

type Said = Required<Pick<Args, "params" | "query" | "body">> & Args;
type Line = {
  argv: string[];
  stdin?: Buffer | string;
  /** converts the printed value to the value of the wire protocol */
  value?: (printed: unknown) => unknown;
  /** for output that is not JSON */
  raw?: (result: CliResult) => unknown;
  /** exit code of a successful call */
  exit?: (printed: unknown) => number;
  /** for what a thread cannot do, as setting the umask */
  process?: boolean;
  /** a second command line that returns the value, for verbs that print less than the wire protocol */
  after?: Line;
};
export type Lines = { [N in RouteName]?: (said: Said) => Line };

const LIMITS = {
  memory_limit_mib: "--memory-limit-mib",
  cpu_limit: "--cpu-limit",
  cpu_weight: "--cpu-weight",
  pids_limit: "--pids-limit",
  io_limit_mbps: "--io-limit-mbps",
};

export function cliDriver(daemon: TestDaemon): Driver {
  return {
    name: "cli",
    call: async (route, args) => {
      const lineOf = LINES[route];
      assert.ok(lineOf, `there is no verb for ${route}: say so in the case`);
      return run(daemon, lineOf({ params: {}, query: {}, body: {}, ...args }), args);
    },
  };
}

async function run(daemon: TestDaemon, line: Line, args: Args): Promise<Outcome> {
  const { token } = args;
  const remote = token === undefined ? {} : { FORKD_URL: `http://${daemon.bind}`, ...(token === "" ? {} : { FORKD_TOKEN: token }) };
  const [verb = "", ...rest] = line.argv;
  const argv = line.raw ? [verb, ...rest] : withJson(verb, rest);
  // in a thread: 500 processes would take a minute of CPU time
  const call = line.process ? forkdProcess : forkdBinary;
  const result = await call(argv, { ...daemon.ownEnv, ...remote }, line.stdin);
  const told = `forkd ${argv.join(" ")} → ${result.code}\n${result.stdout}${result.stderr}`;
  if (line.raw) {
    if (result.code !== 0) return jsonFailure(result) ?? plainFailure(result, told);
    return { value: line.raw(result) };
  }
  const printed = result.stdout === "" ? undefined : (JSON.parse(result.stdout) as unknown);
  const failure = failureIn(printed);
  if (failure) {
    assert.ok((failure.code === "USAGE" ? [2] : failure.code === "EXEC_FAILED" ? [126, 127] : [1]).includes(result.code ?? 0), told);
    return failure;
  }
  assert.equal(result.code, line.exit?.(printed) ?? 0, told);
  if (line.after) return run(daemon, line.after, args);
  return { value: line.value ? line.value(printed) : printed };
}

/** Adds --json before `--`, which begins the guest's command */
function withJson(verb: string, rest: string[]): string[] {
  const end = rest.indexOf("--");
  return end < 0 ? [verb, ...rest, "--json"] : [verb, ...rest.slice(0, end), "--json", ...rest.slice(end)];
}

/** The problem, or the first one in a list of outcomes */
function failureIn(printed: unknown): { code: string; message: string } | undefined {
  const [found] = [printed].flat().filter((item) => typeof item === "object" && item !== null && "code" in item && "hint" in item);
  if (!found) return undefined;
  const { code, error, hint } = found as { code: string; error: string; hint: string };
  assert.ok(error && hint, `an error without words: ${JSON.stringify(found)}`);
  return { code, message: error };
}

/** Failure of a verb that prints one line per value, but a single object on failure */
function jsonFailure({ stdout }: CliResult): Outcome | undefined {
  return stdout.startsWith("{\n") ? failureIn(JSON.parse(stdout)) : undefined;
}

/** Failure in text form: the message, then the hint with the code in brackets */
function plainFailure({ stderr }: CliResult, told: string): Outcome {
  const [, message = "", code] = /^forkd: (.+)\n.+ \[([A-Z_]+)\]$/m.exec(stderr) ?? [];
  assert.ok(code, told);
  return { code, message };
}

const NOTHING = (): null => null;

const LINES: Lines = {
  getStatus: () => ({ argv: ["status"] }),
  getConfig: () => ({ argv: ["config"] }),
  stopDaemon: ({ body }) => ({ argv: ["down", ...when(body["kill_sandboxes"], "--kill-sandboxes")], value: NOTHING }),
  collectGarbage: ({ body }) => ({ argv: ["gc", ...when(body["dry_run"], "--dry-run")] }),
  getEvents: ({ query, take = 1 }) => ({
    argv: ["events", "--json", "--count", String(take), ...options(query, { since: "--since", types: "--types", sandbox: "--sandbox" })],
    raw: ({ stdout }) =>
      stdout
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line) as unknown),
  }),
  getTree: () => ({ argv: ["tree"] }),
  getCluster: () => ({ argv: ["cluster", "status"] }),
  updateNode: ({ params, body }) => ({ argv: ["cluster", body["cordoned"] === false ? "uncordon" : "cordon", text(params["node"])] }),
  drainNode: ({ params }) => ({ argv: ["cluster", "drain", text(params["node"])] }),
  getStats: () => ({ argv: ["stats"] }),
  createUiLink: ({ body }) => ({ argv: ["ui", "--no-open", ...options(body, { scope: "--scope", session_secs: "--session" })] }),
  deleteUiSessions: () => ({ argv: ["ui", "--log-out"], value: NOTHING }),
  listTokens: () => ({ argv: ["token", "ls"] }),
  createToken: ({ body }) => ({
    argv: [
      "token",
      "create",
      text(body["name"]),
      ...options(body, { project: "--project", scope: "--scope", max_sandboxes: "--max-sandboxes", expires_in_secs: "--expires-in" }),
    ],
  }),
  listProjects: () => ({ argv: ["project", "ls"] }),
  createProject: ({ body }) => ({ argv: ["project", "create", text(body["name"]), ...quotaOptions(body)] }),
  updateProject: ({ params, body }) => ({ argv: ["project", "set", text(params["name"]), ...quotaOptions(body)] }),
  deleteProject: ({ params }) => ({ argv: ["project", "rm", text(params["name"])], value: NOTHING }),
  getQuota: () => ({ argv: ["quota"] }),
  rotateToken: ({ params }) => ({ argv: ["token", "rotate", text(params["name"])] }),
  deleteToken: ({ params }) => ({ argv: ["token", "rm", text(params["name"])], value: NOTHING }),

  listImages: () => ({ argv: ["image", "ls"] }),
  createImage: ({ body }) => ({
    argv: [
      "image",
      ...(body["file"] !== undefined
        ? ["import", text(body["file"]), "--name", text(body["name"])]
        : body["reference"] !== undefined
          ? ["pull", text(body["reference"]), ...options(body, { name: "--name" })]
          : ["build", text(body["name"]), "--packages", (body["packages"] as string[]).join(",")]),
      ...((body["copy"] ?? []) as { from: string; to: string }[]).flatMap(({ from, to }) => ["--copy", `${from}:${to}`]),
      ...options(body, { suite: "--suite", mirror: "--mirror", max_bytes: "--max-bytes" }),
    ],
  }),
  getImage: ({ params }) => ({ argv: ["image", "inspect", text(params["name"])] }),
  deleteImage: ({ params }) => ({ argv: ["image", "rm", text(params["name"])], value: NOTHING }),
  listSnapshots: ({ query }) => ({ argv: ["snapshot", "ls", "-a", ...repeated("--metadata", query["metadata"])] }),
  createSnapshot: ({ body }) => ({
    argv: [
      "snapshot",
      "create",
      text(body["tag"]),
      ...flags(body, ["tag", "warm_up", "metadata", "env", "network", "hugepages"]),
      ...when(body["hugepages"], "--hugepages"),
      ...when((body["warm_up"] as { kernels?: unknown[] } | undefined)?.kernels?.length === 0, "--warm-nothing"),
      ...pairs("--metadata", body["metadata"]),
      ...pairs("--env", body["env"]),
      ...network(body["network"], "--network"),
    ],
  }),
  getSnapshot: ({ params }) => ({ argv: ["snapshot", "info", text(params["tag"])] }),
  getSnapshotDetails: ({ params }) => ({ argv: ["snapshot-info", text(params["tag"])] }),
  updateSnapshot: ({ params, body }) => ({
    argv:
      body["tag"] === undefined
        ? ["snapshot", "pool", text(params["tag"]), text(body["pool"])]
        : ["snapshot", "rename", text(params["tag"]), text(body["tag"])],
  }),
  deleteSnapshot: ({ params, query }) => ({
    argv: ["snapshot", "rm", text(params["tag"]), ...when(query["cascade"], "--cascade"), ...when(query["force"], "--force")],
    value: NOTHING,
  }),
  compactSnapshot: ({ params, body }) => ({ argv: ["snapshot", "compact", text(params["tag"]), text(body["to"])] }),

  listSandboxes: ({ query }) => ({
    argv: ["ls", ...options(query, { tag: "--tag", state: "--state" }), ...repeated("--metadata", query["metadata"])],
  }),
  forkSandbox: ({ params, body }) => ({
    argv: [
      "fork",
      "--from-sandbox",
      text(params["id"]),
      ...options(body, { n: "-n", tag: "--tag", isolation: "--isolation", ttl_secs: "--ttl", ...LIMITS }),
      ...pairs("--metadata", body["metadata"]),
      ...network(body["network"], "--network"),
      ...sharesOf(body),
    ],
  }),
  createSandboxes: ({ body }) => ({
    argv: [
      "fork",
      text(body["snapshot_tag"]),
      ...options(body, {
        n: "-n",
        name: "--name",
        isolation: "--isolation",
        ttl_secs: "--ttl",
        idle_timeout_secs: "--idle-timeout",
        ...LIMITS,
      }),
      ...pairs("--metadata", body["metadata"]),
      ...pairs("--env", body["env"]),
      ...network(body["network"], "--network"),
      ...sharesOf(body),
      ...["per_item", "per_child_netns", "prewarm", "live_fork", "hugepages"].flatMap((field) =>
        when(body[field], `--${field.replaceAll("_", "-")}`),
      ),
    ],
    ...(body["per_item"] === true ? { value: (results: unknown) => ({ results }) } : {}),
  }),
  deleteSandboxes: ({ query }) => ({
    argv: ["kill", ...when(query["all"], "--all"), ...options(query, { tag: "--tag" })],
    value: (ended) => (ended as { id: string }[]).map(({ id }) => id),
  }),
  getSandbox: ({ params }) => ({ argv: ["inspect", text(params["id"])] }),
  updateSandbox: ({ params, body }) => ({
    argv:
      typeof body["name"] === "string"
        ? ["rename", text(params["id"]), body["name"]]
        : [
            "extend",
            text(params["id"]),
            ...options(orNever(body), { ttl_secs: "--ttl", idle_timeout_secs: "--idle-timeout" }),
            ...when(body["rotate_access"], "--rotate-access"),
          ],
  }),
  deleteSandbox: ({ params }) => ({ argv: ["kill", text(params["id"])], value: NOTHING }),
  pingSandbox: ({ params }) => ({ argv: ["ping", text(params["id"])] }),
  execCommand: execLine,
  evalCode: ({ params, body }) => ({
    argv: [
      "eval",
      text(params["id"]),
      ...options(body, { language: "--language", context: "--context", timeout_secs: "--timeout-secs" }),
      ...pairs("--env", body["env"]),
      "--",
      "-",
    ],
    stdin: text(body["code"]),
    exit: exitCodeOf,
  }),
  listContexts: ({ params }) => ({ argv: ["context", "list", text(params["id"])] }),
  createContext: ({ params, body }) => ({
    argv: [
      "context",
      "create",
      text(params["id"]),
      ...options(body, { language: "--language", cwd: "--cwd" }),
      ...pairs("--env", body["env"]),
    ],
  }),
  restartContext: ({ params }) => ({ argv: ["context", "restart", text(params["id"]), text(params["context"])] }),
  interruptContext: ({ params }) => ({ argv: ["context", "interrupt", text(params["id"]), text(params["context"])], value: NOTHING }),
  deleteContext: ({ params }) => ({ argv: ["context", "rm", text(params["id"]), text(params["context"])], value: NOTHING }),
  branchSandbox: ({ params, body }) => ({
    argv: [
      "branch",
      text(params["id"]),
      ...flags(body, ["wait", "hold", "metadata"]),
      ...when(body["wait"] === false, "--no-wait"),
      ...when(body["hold"] === true, "--hold"),
      ...pairs("--metadata", body["metadata"]),
    ],
  }),
  pauseSandbox: ({ params }) => ({ argv: ["pause", text(params["id"])], after: { argv: ["inspect", text(params["id"])] } }),
  suspendSandbox: ({ params }) => ({ argv: ["suspend", text(params["id"])], after: { argv: ["inspect", text(params["id"])] } }),
  resumeSandbox: ({ params }) => ({ argv: ["resume", text(params["id"])], after: { argv: ["inspect", text(params["id"])] } }),
  getNetwork: ({ params }) => ({ argv: ["network", text(params["id"])] }),
  setNetwork: ({ params, body }) => ({ argv: ["network", text(params["id"]), ...network(body, "--set")] }),
  getSandboxLogs: ({ params, query }) => ({
    argv: ["logs", text(params["id"]), ...options(query, { source: "--source", tail: "--tail" })],
    raw: ({ stdout }) => stdout,
  }),
  readFile: ({ params, query }) => ({ argv: ["cp", `${params["id"]}:${text(query["path"])}`, "-"], raw: ({ bytes }) => bytes }),
  writeFile: ({ params, query, bytes }) => ({
    argv: ["cp", "-", `${params["id"]}:${text(query["path"])}`, ...when(query["parents"], "--parents")],
    stdin: bytes ?? "",
  }),
  statFile: ({ params, query }) => ({
    argv: ["files", "stat", place(params, query["path"]), ...when(query["follow"], "-L"), ...as(query)],
  }),
  listFiles: ({ params, query }) => ({
    argv: ["files", "ls", place(params, query["path"]), ...options(query, { depth: "--depth" }), ...as(query)],
  }),
  makeDirectory: ({ params, body }) => ({
    argv: ["files", "mkdir", place(params, body["path"]), ...when(body["parents"], "-p"), ...options(body, { mode: "-m" }), ...as(body)],
    value: NOTHING,
  }),
  moveFile: ({ params, body }) => ({ argv: ["files", "mv", ...fromTo(params, body)], value: NOTHING }),
  copyFile: ({ params, body }) => ({ argv: ["files", "cp", ...fromTo(params, body), ...when(body["recursive"], "-r")], value: NOTHING }),
  removeFile: ({ params, query }) => ({
    argv: ["files", "rm", place(params, query["path"]), ...when(query["recursive"], "-r"), ...as(query)],
    value: NOTHING,
  }),
  chmodFile: ({ params, body }) => ({
    argv: ["files", "chmod", text(body["mode"]), place(params, body["path"]), ...when(body["recursive"], "-r"), ...as(body)],
    value: NOTHING,
  }),
  chownFile: ({ params, body }) => ({
    argv: ["files", "chown", ownerOf(body), place(params, body["path"]), ...when(body["recursive"], "-r"), ...as(body)],
    value: NOTHING,
  }),
  makeSymlink: ({ params, body }) => ({
    argv: ["files", "ln", text(body["target"]), place(params, body["path"]), ...as(body)],
    value: NOTHING,
  }),
  watchFiles: ({ params, query, take = 1 }) => ({
    argv: ["files", "watch", "--json", "-n", String(take), place(params, query["path"]), ...when(query["recursive"], "-r"), ...as(query)],
    raw: ({ stdout }) =>
      stdout
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line) as unknown),
  }),
  readTar: ({ params, query }) => {
    const folder = join(tmpdir(), `forkd-contract-${process.pid}`);
    return {
      argv: ["cp", "-r", place(params, query["path"]), folder],
      process: true,
      value: () => {
        const names = readdirSync(folder).join(" ");
        rmSync(folder, { recursive: true });
        return names;
      },
    };
  },
  writeTar: ({ params, query }) => ({ argv: ["cp", "-r", import.meta.dirname, place(params, query["path"])], process: true }),

  ...packLines,
  ...recipeLines,

  listPorts: ({ params }) => ({ argv: ["ports", text(params["id"])] }),
  createPreview: ({ params, body }) => ({
    argv: ["preview", text(params["id"]), text(params["port"]), ...options(body, { expires_in_secs: "--expires" })],
  }),
  startProcess: ({ params, body }) => ({
    argv: [
      "exec",
      "-d",
      text(params["id"]),
      ...options(body, { tag: "--tag", cwd: "--cwd", user: "--user", timeout_secs: "--timeout-secs" }),
      ...pairs("--env", body["env"]),
      ...when(body["stdin"], "-i"),
      ...when(body["terminal"], "-t"),
      "--",
      ...(body["args"] as string[]),
    ],
  }),
  listProcesses: ({ params }) => ({ argv: ["ps", "-a", text(params["id"])] }),
  killProcess: ({ params }) => ({ argv: ["signal", text(params["id"]), text(params["process"]), "KILL"], value: NOTHING }),
  watchProcess: ({ params, query }) => ({
    argv: ["attach", text(params["id"]), text(params["process"]), "--from", placeOf(query)],
    raw: ({ stdout, stderr, code }) => ({ stdout, stderr, exit_code: code }),
  }),
  writeStdin: ({ params, bytes }) => ({
    argv: ["attach", "-i", text(params["id"]), text(params["process"])],
    stdin: bytes ?? "",
    raw: NOTHING,
  }),
  signalProcess: ({ params, body }) => ({
    argv: ["signal", text(params["id"]), text(params["process"]), text(body["signal"]), ...when(body["scope"] === "process", "--only")],
    value: NOTHING,
  }),

  listWorkspaces: () => ({ argv: ["workspace", "list"] }),
  createWorkspace: ({ body }) => ({
    argv: [
      "workspace",
      "create",
      text(body["name"]),
      ...options(body, { snapshot_tag: "--snapshot", ...LIMITS }),
      ...when(body["per_child_netns"], "--per-child-netns"),
    ],
  }),
  deleteWorkspace: ({ params }) => ({ argv: ["workspace", "delete", text(params["name"])], value: NOTHING }),
  suspendWorkspace: ({ params, body }) => ({ argv: ["workspace", "suspend", text(params["name"]), ...when(body["diff"], "--diff")] }),
  resumeWorkspace: ({ params }) => ({ argv: ["workspace", "resume", text(params["name"])] }),
};

function placeOf({ stdout_from: stdout = 0, stderr_from: stderr = 0 }: Said["query"]): string {
  return stdout === "now" ? "now" : `${text(stdout)}-${text(stderr)}`;
}

/** Binary output is complete only without --json */
function execLine({ params, body }: Said): Line {
  const isBinary = body["encoding"] === "base64";
  const stdin = body["stdin"] === undefined ? undefined : Buffer.from(text(body["stdin"]), isBinary ? "base64" : "utf8");
  return {
    argv: [
      "exec",
      text(params["id"]),
      ...options(body, { timeout_secs: "--timeout-secs", cwd: "--cwd", user: "--user" }),
      ...pairs("--env", body["env"]),
      ...when(stdin, "-i"),
      "--",
      ...(body["args"] as string[]),
    ],
    ...(stdin ? { stdin } : {}),
    ...(isBinary ? { raw: ({ bytes, code }) => ({ stdout: bytes.toString("base64"), exit_code: code }) } : { exit: exitCodeOf }),
  };
}

function exitCodeOf(printed: unknown): number {
  return (printed as { exit_code: number }).exit_code;
}

/** null is none */
function quotaOptions({ name: _name, ...quota }: Record<string, unknown>): string[] {
  return Object.entries(quota).flatMap(([field, value]) => [
    `--${field.replaceAll("_", "-")}`,
    value === null ? "none" : JSON.stringify(value),
  ]);
}

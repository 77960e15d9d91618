// Settings of the daemon: from options, the environment, a file and defaults, each checked and with its source.

import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import { dirname, join, resolve } from "node:path";
import { NAME_PATTERN } from "./api/common.ts";
import { ForkdError, messageOf } from "./errors.ts";
import { TRUST } from "./pack/signature.ts";
import { DEFAULT_PARALLELISM } from "./util/parallelism.ts";
import type { ParseArgsOptionDescriptor } from "node:util";
import type { Config as ConfigAnswer } from "./api/daemon.ts";
import type { Home } from "./home.ts";

const CONFINEMENT = ["required", "preferred"] as const;
const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

const BIND_DEFAULT = "127.0.0.1:8889";
/** Options of the older controller that mean nothing here */
const IGNORED_OPTIONS = ["state", "snapshot-root", "prewarm-scratch-dir"];

export type LogLevel = (typeof LOG_LEVELS)[number];

/** Never holds a secret: GET /v1/config shows all of it */
export type Config = Readonly<{
  /** HOST:PORT of the TCP listener; null: none */
  bind: string | null;
  tlsCert: string | null;
  tlsKey: string | null;
  /** plain HTTP on an address that others can reach */
  insecure: boolean;
  /** origins of pages whose scripts may ask over TCP, separated by commas, or `*`; null: none */
  corsOrigins: string | null;
  /** below this name every server in a sandbox has a host name of its own; with a scheme, as browsers find it behind another proxy; null: none */
  proxyDomain: string | null;
  /** folders below which a token of scope admin may share others with guests, separated by commas; null: none */
  shareRoots: string | null;
  /** file with one admin token */
  tokenFile: string | null;
  auditLog: string | null;
  branchConcurrency: number;
  maxSandboxes: number;
  /** limit of the sum of guest RAM; null: none */
  maxMemoryMiB: number | null;
  /** limit of the sum of the disks of running sandboxes; null: none */
  maxDiskMiB: number | null;
  /** what the host keeps free */
  minFreeMiB: number;
  /** whether VMs may run where the host does not let VMMs be confined */
  confinement: (typeof CONFINEMENT)[number];
  defaultImage: string;
  /** whose packs are taken in */
  packTrust: (typeof TRUST)[number];
  /** limit of the compressed blobs that are kept */
  packCacheMiB: number;
  drainSecs: number;
  /** 0: never */
  exitWhenIdleSecs: number;
  logLevel: LogLevel;
  parallelism: number;
  /** index in which aliases of snapshots are looked up; null: none */
  hubUrl: string | null;
  /** name servers for sandboxes, separated by commas; null: those of the host */
  dnsServers: string | null;
}>;

type Key = keyof Config;
type Source = ConfigAnswer[string]["source"];
type Value = Config[Key];
type Given = { raw: unknown; source: Source; where: string; folder: string };

export type ResolvedConfig = Readonly<{
  values: Config;
  /** each setting with where it comes from, by its name outside, as the API and `forkd config` show it */
  entries: Readonly<ConfigAnswer>;
  /** what to say in the log at the start */
  warnings: readonly string[];
}>;

export type ConfigInput = {
  /** by the option's name without dashes (`tls-cert`) */
  options?: Readonly<Record<string, string | boolean | undefined>>;
  env?: NodeJS.ProcessEnv;
  home: Home;
};

type Parser = (raw: unknown, folder: string) => Value;
type Setting<V> = { name: string; parse: (raw: unknown, folder: string) => V; fallback: (home: Home) => V };

const SETTINGS: { [K in Key]: Setting<Config[K]> } = {
  bind: { name: "bind", parse: orNone(bind), fallback: () => BIND_DEFAULT },
  tlsCert: { name: "tls_cert", parse: orNone(path), fallback: () => null },
  tlsKey: { name: "tls_key", parse: orNone(path), fallback: () => null },
  insecure: { name: "insecure", parse: bool, fallback: () => false },
  corsOrigins: { name: "cors_origins", parse: orNone(origins), fallback: () => null },
  proxyDomain: { name: "proxy_domain", parse: orNone(proxyDomain), fallback: () => "localhost" },
  shareRoots: { name: "share_roots", parse: orNone(folders), fallback: () => null },
  tokenFile: { name: "token_file", parse: orNone(path), fallback: () => null },
  auditLog: { name: "audit_log", parse: orNone(path), fallback: (home) => join(home.root, "audit.log") },
  branchConcurrency: { name: "branch_concurrency", parse: integer(1, 1024), fallback: () => 4 },
  maxSandboxes: { name: "max_sandboxes", parse: integer(1, 1_000_000), fallback: () => 1000 },
  maxMemoryMiB: { name: "max_memory_mib", parse: orNone(integer(1, 1 << 30)), fallback: () => null },
  maxDiskMiB: { name: "max_disk_mib", parse: orNone(integer(1, 1 << 30)), fallback: () => null },
  minFreeMiB: { name: "min_free_mib", parse: integer(0, 1 << 30), fallback: () => 512 },
  confinement: { name: "confinement", parse: oneOf(CONFINEMENT), fallback: () => "preferred" },
  defaultImage: { name: "default_image", parse: imageName, fallback: () => "python-numpy" },
  packTrust: { name: "pack_trust", parse: oneOf(TRUST), fallback: () => "any" },
  packCacheMiB: { name: "pack_cache_mib", parse: integer(0, 1 << 30), fallback: () => 4096 },
  drainSecs: { name: "drain_secs", parse: integer(0, 3600), fallback: () => 30 },
  exitWhenIdleSecs: { name: "exit_when_idle_secs", parse: integer(0, 31_536_000), fallback: () => 0 },
  logLevel: { name: "log_level", parse: oneOf(LOG_LEVELS), fallback: () => "info" },
  parallelism: { name: "parallelism", parse: integer(1, 1024), fallback: () => DEFAULT_PARALLELISM },
  hubUrl: { name: "hub_url", parse: orNone(hubUrl), fallback: () => null },
  dnsServers: { name: "dns_servers", parse: orNone(servers), fallback: () => null },
};

const NAMES = Object.values(SETTINGS).map(({ name }) => name);

/** For `parseArgs` of node:util */
export const CONFIG_OPTIONS: Record<string, ParseArgsOptionDescriptor> = Object.fromEntries([
  ...NAMES.map((name) => [optionName(name), { type: name === "insecure" ? "boolean" : "string" }]),
  ...IGNORED_OPTIONS.map((name) => [name, { type: "string" }]),
]);

/** An option wins over FORKD_*, that over the file, that over the default */
export async function resolveConfig(input: ConfigInput): Promise<ResolvedConfig> {
  const { options = {}, env = process.env, home } = input;
  const file = await readConfigFile(env["FORKD_CONFIG"] || undefined, join(home.root, "config.json"));
  const values: Record<string, Value> = {};
  const entries: ConfigAnswer = {};
  for (const [key, { name, parse, fallback }] of Object.entries(SETTINGS)) {
    const given = find(name, { options, env, file });
    const value = given ? parsed(name, given, parse) : fallback(home);
    values[key] = value;
    entries[name] = { value, source: given?.source ?? "default" };
  }
  const config = Object.freeze(values) as Config;
  checkTogether(config);
  const warnings = IGNORED_OPTIONS.filter((name) => options[name] !== undefined).map((name) => `--${name} has no effect here.`);
  if (config.bind !== null && !isLoopback(config.bind) && config.tlsCert === null)
    warnings.push(`INSECURE: ${config.bind} is served without TLS; everyone on the way can read the tokens and act with them.`);
  return Object.freeze({ values: config, entries: Object.freeze(entries), warnings });
}

/** The descriptor on which whoever started the daemon waits to hear that it is ready */
export function readyDescriptor(env: NodeJS.ProcessEnv = process.env): number | null {
  return env["FORKD_READY_FD"] === "3" ? 3 : null;
}

export function splitBind(bind: string): { host: string; port: number } {
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(bind) ?? [];
  return { host: bracketed ?? plain ?? "", port: Number(port) };
}

function find(
  name: string,
  from: { options: NonNullable<ConfigInput["options"]>; env: NodeJS.ProcessEnv; file: ConfigFile | null },
): Given | null {
  const option = from.options[optionName(name)];
  if (option !== undefined) return { raw: option, source: "option", where: `--${optionName(name)}`, folder: process.cwd() };
  const variable = `FORKD_${name.toUpperCase()}`;
  // an empty variable is how a shell or a unit file takes one back
  if (from.env[variable]) return { raw: from.env[variable], source: "environment", where: variable, folder: process.cwd() };
  if (from.file && Object.hasOwn(from.file.content, name))
    return { raw: from.file.content[name], source: "file", where: from.file.path, folder: dirname(from.file.path) };
  return null;
}

function parsed(name: string, given: Given, parse: Parser): Value {
  try {
    return parse(given.raw, given.folder);
  } catch (error) {
    if (!(error instanceof Rule)) throw error;
    const value = JSON.stringify(given.raw)?.slice(0, 200);
    throw new ForkdError("BAD_CONFIG", `Cannot use ${name} = ${value} from ${given.where}: it must be ${error.message}.`);
  }
}

function checkTogether(values: Config): void {
  if ((values.tlsCert === null) !== (values.tlsKey === null)) {
    const missing = values.tlsCert === null ? "tls_cert" : "tls_key";
    throw new ForkdError("BAD_CONFIG", `Cannot serve TLS: ${missing} is missing; tls_cert and tls_key go together.`);
  }
  if (values.bind !== null && !isLoopback(values.bind) && values.tlsCert === null && !values.insecure) {
    throw new ForkdError("BAD_CONFIG", `Cannot serve ${values.bind} without TLS: others could read the tokens on their way.`, {
      hint: "Give --tls-cert and --tls-key, bind to 127.0.0.1, or say --insecure if the network is yours alone.",
    });
  }
}

type ConfigFile = { path: string; content: Record<string, unknown> };

async function readConfigFile(named: string | undefined, usual: string): Promise<ConfigFile | null> {
  const path = resolve(named ?? usual);
  let content: unknown;
  try {
    content = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" && named === undefined) return null;
    throw new ForkdError("BAD_CONFIG", `Cannot read the settings in ${path}: ${messageOf(error)}.`, { cause: error });
  }
  if (typeof content !== "object" || content === null || Array.isArray(content))
    throw new ForkdError("BAD_CONFIG", `Cannot read the settings in ${path}: it must be a JSON object.`);
  const unknown = Object.keys(content).find((key) => !NAMES.includes(key));
  if (unknown !== undefined)
    throw new ForkdError("BAD_CONFIG", `Cannot use ${JSON.stringify(unknown)} from ${path}: there is no such setting.`, {
      hint: `There are: ${NAMES.join(", ")}.`,
    });
  return { path, content: content as Record<string, unknown> };
}

function optionName(name: string): string {
  return name.replaceAll("_", "-");
}

function isLoopback(bind: string): boolean {
  const { host } = splitBind(bind);
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** The rule that a value breaks, as the end of "it must be …" */
class Rule extends Error {}

function orNone<V>(parse: (raw: unknown, folder: string) => V): (raw: unknown, folder: string) => V | null {
  return (raw, folder) => (raw === null || raw === "none" ? null : parse(raw, folder));
}

function path(raw: unknown, folder: string): string {
  if (typeof raw !== "string" || raw === "" || raw.includes("\0")) throw new Rule("a path, or none");
  return resolve(folder, raw);
}

function folders(raw: unknown, folder: string): string {
  const rule = new Rule("folders, separated by commas, or none");
  if (typeof raw !== "string") throw rule;
  const paths = raw.split(",").map((one) => one.trim());
  if (paths.some((one) => one === "" || one.includes("\0"))) throw rule;
  return paths.map((one) => resolve(folder, one)).join(",");
}

function bool(raw: unknown): boolean {
  if (raw === true || raw === "true" || raw === "1") return true;
  if (raw === false || raw === "false" || raw === "0") return false;
  throw new Rule("true or false");
}

function integer(min: number, max: number): (raw: unknown) => number {
  return (raw) => {
    const value = typeof raw === "string" && /^\d{1,10}$/.test(raw) ? Number(raw) : raw;
    if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max)
      throw new Rule(`a whole number from ${min} to ${max}`);
    return value;
  };
}

function bind(raw: unknown): string {
  const { host, port } = typeof raw === "string" ? splitBind(raw) : { host: "", port: 0 };
  const isHost = isIP(host) !== 0 || /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(host);
  if (!isHost || port > 65_535) throw new Rule("HOST:PORT such as 127.0.0.1:8889 or [::1]:8889, or none");
  return raw as string;
}

/** As browsers write them: no path, lower case, no port where it is the usual one */
function origins(raw: unknown): string {
  if (raw === "*") return raw;
  const rule = new Rule("origins such as https://app.example.org, separated by commas, or *, or none");
  if (typeof raw !== "string") throw rule;
  const parts = raw.split(",").map((part) => part.trim());
  if (!parts.every((part) => /^https?:\/\/[^/?#@\\\s]+$/i.test(part) && URL.canParse(part))) throw rule;
  return parts.map((part) => new URL(part).origin).join(",");
}

function servers(raw: unknown): string {
  const rule = new Rule("addresses such as 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53, separated by commas, or none");
  if (typeof raw !== "string") throw rule;
  const parts = raw.split(",").map((part) => part.trim());
  const isServer = (part: string): boolean => {
    if (isIP(part) !== 0) return true;
    const { host, port } = splitBind(part);
    return isIP(host) !== 0 && port > 0 && port <= 65_535;
  };
  if (!parts.every(isServer)) throw rule;
  return parts.join(",");
}

/** Without a query: it could be a secret, and everybody who may read the settings would see it */
function hubUrl(raw: unknown): string {
  const url = typeof raw === "string" && URL.canParse(raw) ? new URL(raw) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash)
    throw new Rule("an https address such as https://hub.example.org/registry.json, without a login or a query, or none");
  return url.href;
}

/** Browsers take every name below localhost for this machine */
function proxyDomain(raw: unknown): string {
  const label = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
  const isDomain =
    typeof raw === "string" && raw.length <= 200 && new RegExp(`^(https?://)?(${label}\\.)*${label}(:\\d{1,5})?$`, "i").test(raw);
  const { hostname } = isDomain ? new URL(raw.includes("://") ? raw : `http://${raw}`) : { hostname: "" };
  if (hostname === "" || isIP(hostname) !== 0)
    throw new Rule("a domain such as preview.example.org or https://preview.example.org, or none");
  return (raw as string).toLowerCase();
}

function imageName(raw: unknown): string {
  if (typeof raw !== "string" || !NAME_PATTERN.test(raw)) throw new Rule("the name of an image");
  return raw;
}

function oneOf<V extends string>(words: readonly V[]): (raw: unknown) => V {
  return (raw) => {
    const word = words.find((known) => known === raw);
    if (word === undefined) throw new Rule(`one of ${words.join(", ")}`);
    return word;
  };
}

// Daemon configuration from options, environment, file and defaults, validated, with the source of each setting.

import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import { dirname, join, resolve } from "node:path";
import { NAME } from "@forkd/runtime/util/name";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { DEFAULT_HUGEPAGES_DIR } from "@forkd/runtime/host/huge-pages";
import { ACCELERATORS, ISOLATIONS, type AcceleratorPolicy, type IsolationPolicy } from "@forkd/runtime/host/accelerators";
import { TRUST } from "@forkd/runtime/pack/signature";
import { IGNORED_OPTIONS, optionOf, SETTINGS, variableOf } from "./settings.ts";
import { DEFAULT_PARALLELISM } from "@forkd/runtime/util/parallelism";
import type { ParseArgsOptionDescriptor } from "node:util";
import type { Config as ConfigAnswer } from "./api/daemon.ts";
import type { Home } from "@forkd/runtime/home";
import type { SettingText } from "./settings.ts";

const CONFINEMENT = ["required", "preferred"] as const;
const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

export type LogLevel = (typeof LOG_LEVELS)[number];

/** Must not contain secrets: GET /v1/config shows all of it */
export type Config = Readonly<{
  /** HOST:PORT of the TCP listener; null: none */
  bind: string | null;
  tlsCert: string | null;
  tlsKey: string | null;
  /** allows plain HTTP on a non-loopback address */
  insecure: boolean;
  /** CORS origins, separated by commas, or `*`; null: none */
  corsOrigins: string | null;
  /** additional Host names without TLS, separated by commas, or `*`; null: none */
  allowedHosts: string | null;
  /** domain below which each guest server has a host name; with a scheme if a reverse proxy is in front; null: none */
  proxyDomain: string | null;
  /** folders below which a token of scope operator may share with guests, separated by commas; null: none */
  shareRoots: string | null;
  /** file with one token of scope operator */
  tokenFile: string | null;
  /** file with the key of the cluster, or two during a rotation */
  clusterKeyFile: string | null;
  auditLog: string | null;
  branchConcurrency: number;
  maxSandboxes: number;
  maxSuspended: number;
  maxSnapshots: number;
  /** limit of the total guest memory; null: none */
  maxMemoryMiB: number | null;
  /** limit of the total disk size of running sandboxes; null: none */
  maxDiskMiB: number | null;
  /** memory that must stay free on the host */
  minFreeMiB: number;
  /** whether VMs may run on a host that cannot confine VMMs */
  confinement: (typeof CONFINEMENT)[number];
  /** whether guests may be emulated */
  isolation: IsolationPolicy;
  /** KVM or emulation */
  accelerator: AcceleratorPolicy;
  /** folder on a tmpfs with huge pages */
  hugepagesDir: string;
  defaultImage: string;
  /** signature policy for received packs */
  packTrust: (typeof TRUST)[number];
  /** limit of the cache of compressed pack blobs */
  packCacheMiB: number;
  drainSecs: number;
  /** 0: VMs continue without the daemon */
  leaveSecs: number;
  /** 0: never */
  exitWhenIdleSecs: number;
  logLevel: LogLevel;
  parallelism: number;
  /** index for snapshot aliases; null: none */
  hubUrl: string | null;
  /** DNS servers for sandboxes, separated by commas; null: those of the host */
  dnsServers: string | null;
}>;

type Key = keyof Config;
type Source = ConfigAnswer[string]["source"];
type Value = Config[Key];
type Given = { raw: unknown; source: Source; where: string; folder: string };

export type ResolvedConfig = Readonly<{
  values: Config;
  /** settings with their source, by external name, as the API and `forkd config` show them */
  entries: Readonly<ConfigAnswer>;
  /** logged at start */
  warnings: readonly string[];
}>;

export type ConfigInput = {
  /** by option name without dashes (`tls-cert`) */
  options?: Readonly<Record<string, string | boolean | undefined>>;
  env?: NodeJS.ProcessEnv;
  home: Home;
};

type Parser = (raw: unknown, folder: string) => Value;
type Rules<V> = { parse: (raw: unknown, folder: string) => V; fallback: (home: Home) => V };

const RULES: { [K in Key]: Rules<Config[K]> } = {
  bind: { parse: orNone(bind), fallback: () => SETTINGS.bind.fallback },
  tlsCert: { parse: orNone(path), fallback: () => null },
  tlsKey: { parse: orNone(path), fallback: () => null },
  insecure: { parse: bool, fallback: () => false },
  corsOrigins: { parse: orNone(origins), fallback: () => null },
  allowedHosts: { parse: orNone(hosts), fallback: () => null },
  proxyDomain: { parse: orNone(proxyDomain), fallback: () => "localhost" },
  shareRoots: { parse: orNone(folders), fallback: () => null },
  tokenFile: { parse: orNone(path), fallback: () => null },
  clusterKeyFile: { parse: orNone(path), fallback: () => null },
  auditLog: { parse: orNone(path), fallback: (home) => join(home.root, "audit.log") },
  branchConcurrency: { parse: integer(1, 1024), fallback: () => 4 },
  maxSandboxes: { parse: integer(1, 1_000_000), fallback: () => 1000 },
  maxSuspended: { parse: integer(0, 1_000_000), fallback: () => 1000 },
  maxSnapshots: { parse: integer(0, 1_000_000), fallback: () => 1000 },
  maxMemoryMiB: { parse: orNone(integer(1, 1 << 30)), fallback: () => null },
  maxDiskMiB: { parse: orNone(integer(1, 1 << 30)), fallback: () => null },
  minFreeMiB: { parse: integer(0, 1 << 30), fallback: () => 512 },
  confinement: { parse: oneOf(CONFINEMENT), fallback: () => "preferred" },
  isolation: { parse: oneOf(ISOLATIONS), fallback: () => "auto" },
  accelerator: { parse: oneOf(ACCELERATORS), fallback: () => "auto" },
  hugepagesDir: { parse: path, fallback: () => DEFAULT_HUGEPAGES_DIR },
  defaultImage: { parse: imageName, fallback: () => "python-numpy" },
  packTrust: { parse: oneOf(TRUST), fallback: () => "any" },
  packCacheMiB: { parse: integer(0, 1 << 30), fallback: () => 4096 },
  drainSecs: { parse: integer(0, 3600), fallback: () => 30 },
  leaveSecs: { parse: integer(0, 86_400), fallback: () => 0 },
  exitWhenIdleSecs: { parse: integer(0, 31_536_000), fallback: () => 0 },
  logLevel: { parse: oneOf(LOG_LEVELS), fallback: () => "info" },
  parallelism: { parse: integer(1, 1024), fallback: () => DEFAULT_PARALLELISM },
  hubUrl: { parse: orNone(hubUrl), fallback: () => null },
  dnsServers: { parse: orNone(servers), fallback: () => null },
};

const NAMES: string[] = Object.values(SETTINGS).map(({ name }) => name);

/** Option descriptors for `parseArgs` of node:util */
export const CONFIG_OPTIONS: Record<string, ParseArgsOptionDescriptor> = Object.fromEntries([
  ...Object.values<SettingText>(SETTINGS).map(({ name, value }) => [optionOf(name), { type: value === undefined ? "boolean" : "string" }]),
  ...IGNORED_OPTIONS.map((name) => [name, { type: "string" }]),
]);

/** Precedence: option, FORKD_* variable, file, default */
export async function resolveConfig(input: ConfigInput): Promise<ResolvedConfig> {
  const { options = {}, env = process.env, home } = input;
  const file = await readConfigFile(env["FORKD_CONFIG"] || undefined, join(home.root, "config.json"));
  const values: Record<string, Value> = {};
  const entries: ConfigAnswer = {};
  for (const [key, { parse, fallback }] of Object.entries(RULES)) {
    const { name } = SETTINGS[key as Key];
    const given = find(name, { options, env, file });
    const value = given ? parsed(name, given, parse) : fallback(home);
    values[key] = value;
    entries[name] = { value, source: given?.source ?? "default" };
  }
  const config = Object.freeze(values) as Config;
  checkTogether(config);
  const warnings = IGNORED_OPTIONS.filter((name) => options[name] !== undefined).map((name) => `--${name} has no effect here.`);
  if (config.bind !== null && !isLoopback(config.bind) && config.tlsCert === null)
    warnings.push(`INSECURE: ${config.bind} is served without TLS; everyone on the network path can read and use the tokens.`);
  return Object.freeze({ values: config, entries: Object.freeze(entries), warnings });
}

/** File descriptor on which the parent process waits for the ready message; null: none */
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
  const option = from.options[optionOf(name)];
  if (option !== undefined) return { raw: option, source: "option", where: `--${optionOf(name)}`, folder: process.cwd() };
  const variable = variableOf(name);
  // an empty variable counts as unset: shells and unit files use it to clear one
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
    throw new ForkdError("BAD_CONFIG", `Cannot serve ${values.bind} without TLS: others could read the tokens in transit.`, {
      hint: "Give --tls-cert and --tls-key, bind to 127.0.0.1, or use --insecure if you control the whole network.",
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

function isLoopback(bind: string): boolean {
  const { host } = splitBind(bind);
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** Violated rule, worded as the end of "it must be …" */
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

/** Normalized like browsers' Origin: no path, lower case, no default port */
function origins(raw: unknown): string {
  if (raw === "*") return raw;
  const rule = new Rule("origins such as https://app.example.org, separated by commas, or *, or none");
  if (typeof raw !== "string") throw rule;
  const parts = raw.split(",").map((part) => part.trim());
  if (!parts.every((part) => /^https?:\/\/[^/?#@\\\s]+$/i.test(part) && URL.canParse(part))) throw rule;
  return parts.map((part) => new URL(part).origin).join(",");
}

function hosts(raw: unknown): string {
  if (raw === "*") return raw;
  const parts = typeof raw === "string" ? raw.split(",").map((part) => part.trim().toLowerCase()) : [];
  if (parts.length === 0 || !parts.every((part) => /^[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?$/.test(part)))
    throw new Rule("names such as forkd.example.org, without a port, separated by commas, or *, or none");
  return parts.join(",");
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

/** Rejects a query: it could contain a secret, and GET /v1/config would show it */
function hubUrl(raw: unknown): string {
  const url = typeof raw === "string" && URL.canParse(raw) ? new URL(raw) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash)
    throw new Rule("an https address such as https://hub.example.org/registry.json, without a login or a query, or none");
  return url.href;
}

/** Browsers resolve every name below localhost to this machine */
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
  if (typeof raw !== "string" || !NAME.test(raw)) throw new Rule("the name of an image");
  return raw;
}

function oneOf<V extends string>(words: readonly V[]): (raw: unknown) => V {
  return (raw) => {
    const word = words.find((known) => known === raw);
    if (word === undefined) throw new Rule(`one of ${words.join(", ")}`);
    return word;
  };
}

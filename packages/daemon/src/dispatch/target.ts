// Dispatch decision from URL and headers: REST API, dashboard, E2B protocol, or a port of a sandbox.
// It is made once per request, so a request for a guest never reaches an API router, whatever its path.

import { forkdId } from "./e2b-id.ts";
import { hostOf, type Domain } from "./proxy-domain.ts";
import type { IncomingHttpHeaders } from "node:http";

export const ENVD_PORT = 49_983;
export const INTERPRETER_PORT = 49_999;

const BY_PATH = /^(\/v1\/sandboxes\/([^/?#]+)\/proxy\/([^/?#]+))(.*)$/s;
/** Scheme and authority of an absolute-form URL, which HTTP proxy clients send */
const ABSOLUTE = /^https?:\/\/[^/?#]*/i;

const CONTROL =
  /^(\/v[23])?\/(sandboxes|templates|default-templates|snapshots|secrets|volumes|volumecontent|teams|nodes|events|api-keys|access-tokens)(\/|$)/;
const ENVD = /^\/(files|health|envs|process\.Process\/.*|filesystem\.Filesystem\/.*)$/;
const INTERPRETER = /^\/(execute|contexts(\/.*)?)$/;
const DASHBOARD = /^\/ui(\/|$)/;
/** The daemon serves these paths too: they address envd only together with an access token */
const ENVD_WITH_TOKEN = /^\/(metrics|init)$/;

/** A port of a sandbox */
export type Address = {
  by: "path" | "host";
  /** id or name of the sandbox, percent-decoded */
  id: string;
  port: string;
  /** URL prefix that is removed before the guest's path */
  prefix: string;
  /** path and query for the guest, unchanged */
  path: string;
  /** the client used E2B's names and expects E2B's errors */
  isE2b?: boolean;
};

type Place = { path: string; query: URLSearchParams; contentType: string | undefined };

/** Call of E2B's control API */
export type ControlCall = Place & { plane: "control" };

/** Call of envd or the code interpreter of a sandbox. `id` null: the token or signature identifies the sandbox */
export type SandboxCall = Place & { plane: "sandbox"; id: string | null; port: typeof ENVD_PORT | typeof INTERPRETER_PORT };

export type Call = ControlCall | SandboxCall;

export type Target =
  | { to: "rest"; path: string; search: string }
  | { to: "ui"; path: string }
  | { to: "e2b"; call: Call }
  | { to: "port"; address: Address };

type Asked = { url?: string | undefined; headers: IncomingHttpHeaders };

/** @param domain null: host names are ignored */
export function targetOf({ url = "", headers }: Asked, domain: Domain | null): Target {
  const address = addressOf(url, headers, domain);
  const named = namedBy(headers) ?? namedByHost(address);
  if (!named && address) return { to: "port", address };
  const [path, search] = split(url, /\?/);
  const place = (): Place => ({ path, query: new URLSearchParams(search), contentType: headers["content-type"] });
  if (named) {
    const { id, port, isE2b } = named;
    if (isOwnPort(port)) return { to: "e2b", call: { ...place(), plane: "sandbox", id, port } };
    // addressed by headers, the page has the API's origin: treat it like a path, without the rights of its own host
    const guestPath = address?.by === "host" ? address.path : rooted(url);
    return { to: "port", address: { by: address?.by ?? "path", id, port: String(port), prefix: "", path: guestPath, isE2b } };
  }
  if (CONTROL.test(path)) return { to: "e2b", call: { ...place(), plane: "control" } };
  if (ENVD.test(path) || (headers["x-access-token"] !== undefined && ENVD_WITH_TOKEN.test(path)))
    return { to: "e2b", call: { ...place(), plane: "sandbox", id: null, port: ENVD_PORT } };
  if (INTERPRETER.test(path)) return { to: "e2b", call: { ...place(), plane: "sandbox", id: null, port: INTERPRETER_PORT } };
  const [own, query] = split(url.replace(ABSOLUTE, ""), /[?#]/);
  return DASHBOARD.test(own) ? { to: "ui", path: own } : { to: "rest", path: own, search: query };
}

/** Path of a proxied request in the audit log, without the guest's path, which may contain secrets */
export function pathTo({ id, port }: Address): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}/proxy/${encodeURIComponent(port)}`;
}

function addressOf(url: string, headers: IncomingHttpHeaders, domain: Domain | null): Address | null {
  const byHost = domain && hostOf(headers.host, domain);
  if (byHost) return { by: "host", ...byHost, prefix: "", path: url === "*" ? url : rooted(url.replace(ABSOLUTE, "")) };
  const [, prefix, id, port, rest = ""] = BY_PATH.exec(url) ?? [];
  if (prefix === undefined || id === undefined || port === undefined) return null;
  return { by: "path", id: unescaped(id), port: unescaped(port), prefix, path: rooted(rest) };
}

type Named = { id: string; port: number; isE2b: boolean };

function namedBy(headers: IncomingHttpHeaders): Named | null {
  const id = headers["e2b-sandbox-id"];
  if (typeof id !== "string") return null;
  const port = headers["e2b-sandbox-port"];
  return { id: forkdId(id), port: typeof port === "string" ? Number(port) : ENVD_PORT, isE2b: true };
}

function namedByHost(address: Address | null): Named | null {
  if (address?.by !== "host") return null;
  const id = forkdId(address.id);
  const port = Number(address.port);
  // the two ports select the E2B protocol only together with an id in E2B's form
  const isE2b = id !== address.id;
  return !isE2b && isOwnPort(port) ? null : { id, port, isE2b };
}

function isOwnPort(port: number): port is SandboxCall["port"] {
  return port === ENVD_PORT || port === INTERPRETER_PORT;
}

function split(url: string, at: RegExp): [path: string, search: string] {
  const end = url.search(at);
  return end < 0 ? [url, ""] : [url.slice(0, end), url.slice(end + 1)];
}

function rooted(path: string): string {
  return path.startsWith("/") ? path : `/${path}`;
}

/** Malformed escapes are kept; they match no sandbox */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    return text;
  }
}

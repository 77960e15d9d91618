// Which requests are E2B's, and which of its two planes each is for. Nothing of them meets a path of ours.

import { forkdId } from "./ids.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { Address } from "../http/proxy/address.ts";

export const ENVD_PORT = 49_983;
export const INTERPRETER_PORT = 49_999;

const CONTROL =
  /^(\/v[23])?\/(sandboxes|templates|default-templates|snapshots|secrets|volumes|volumecontent|teams|nodes|events|api-keys|access-tokens)(\/|$)/;
const ENVD = /^\/(files|health|envs|process\.Process\/.*|filesystem\.Filesystem\/.*)$/;
const INTERPRETER = /^\/(execute|contexts(\/.*)?)$/;
/** Where the servers of the two ports have paths that the daemon has too, only who brings a sandbox's token can mean them */
const ENVD_WITH_TOKEN = /^\/(metrics|init)$/;

type Place = { path: string; query: URLSearchParams; contentType: string | undefined };

/** For E2B's API */
export type ControlCall = Place & { plane: "control" };

/** For what E2B has listening inside a sandbox. `id` null: the token or the signature tells which */
export type SandboxCall = Place & { plane: "sandbox"; id: string | null; port: typeof ENVD_PORT | typeof INTERPRETER_PORT };

export type Call = ControlCall | SandboxCall;

type Asked = { url?: string | undefined; headers: IncomingHttpHeaders };

/** null: it is not E2B's. An address: it is for another server of the guest */
export function callOf({ url = "", headers }: Asked, address: Address | null): Call | Address | null {
  const named = namedBy(headers) ?? namedByHost(address);
  if (!named && address) return address;
  const [path, search] = split(url);
  const place = { path, query: new URLSearchParams(search), contentType: headers["content-type"] };
  if (named) {
    const { id, port } = named;
    if (isOwnPort(port)) return { ...place, plane: "sandbox", id, port };
    // named by headers it speaks under the API's own origin, and may do no more than what is reached by a path
    return { by: address?.by ?? "path", id, port: String(port), prefix: "", path: url.startsWith("/") ? url : `/${url}` };
  }
  if (CONTROL.test(path)) return { ...place, plane: "control" };
  if (ENVD.test(path) || (headers["x-access-token"] !== undefined && ENVD_WITH_TOKEN.test(path)))
    return { ...place, plane: "sandbox", id: null, port: ENVD_PORT };
  if (INTERPRETER.test(path)) return { ...place, plane: "sandbox", id: null, port: INTERPRETER_PORT };
  return null;
}

type Named = { id: string; port: number };

function namedBy(headers: IncomingHttpHeaders): Named | null {
  const id = headers["e2b-sandbox-id"];
  if (typeof id !== "string") return null;
  const port = headers["e2b-sandbox-port"];
  return { id: forkdId(id), port: typeof port === "string" ? Number(port) : ENVD_PORT };
}

function namedByHost(address: Address | null): Named | null {
  if (address?.by !== "host") return null;
  const id = forkdId(address.id);
  const port = Number(address.port);
  // the two ports of E2B mean its protocol only under the names that E2B gives to sandboxes
  return id === address.id && isOwnPort(port) ? null : { id, port };
}

function isOwnPort(port: number): port is SandboxCall["port"] {
  return port === ENVD_PORT || port === INTERPRETER_PORT;
}

function split(url: string): [path: string, search: string] {
  const at = url.indexOf("?");
  return at < 0 ? [url, ""] : [url.slice(0, at), url.slice(at + 1)];
}

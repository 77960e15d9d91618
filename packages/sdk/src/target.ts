// Address of the daemon: option, then environment, then the default of the runtime.

import { InvalidRequestError } from "./errors.ts";

const DEFAULT_URL = "http://127.0.0.1:8889";

/** A Unix socket, or the URL that paths are appended to */
export type Target =
  | {
      kind: "unix";
      socket: string;
      /** The socket has the default path: its folder must belong to this user, or another user may listen there */
      uid?: number;
    }
  | { kind: "url"; url: string };

type Env = { readonly [name: string]: string | undefined };

/** Globals of server runtimes that browsers do not have */
export type Host = {
  env: Env;
  uid: number;
  cwd?: string;
  /** throws for a path that does not exist; absent in runtimes without a synchronous realpath */
  realPath?: ((path: string) => string) | undefined;
};

/** `unix:///path` and `unix:/path` name a socket; other addresses are http or https */
export function resolveTarget(opts: { url?: string | undefined; socket?: string | undefined }, host: Host | undefined): Target {
  if (opts.url) return parseUrl(opts.url);
  if (opts.socket) return { kind: "unix", socket: opts.socket };
  if (host === undefined) return { kind: "url", url: DEFAULT_URL };
  if (host.env["FORKD_URL"]) return parseUrl(host.env["FORKD_URL"]);
  // No fallback to the TCP port: on a shared machine another user's daemon may listen there.
  if (host.env["FORKD_SOCKET"]) return { kind: "unix", socket: host.env["FORKD_SOCKET"] };
  return { kind: "unix", socket: defaultSocket(host), uid: host.uid };
}

/** Id of the store that FORKD_HOME names, sent to the default socket: a daemon of another store must refuse the request */
export function resolveStore(target: Target, host: Host | undefined): string | undefined {
  const home = host?.env["FORKD_HOME"];
  if (!home || target.kind !== "unix" || absolute(target.socket, host) !== defaultSocket(host)) return undefined;
  return storeId(realOf(absolute(home, host), host));
}

/** The token to send. One that is not a valid header value is refused before anything is sent */
export function resolveToken(option: string | undefined, host: Host | undefined): string | undefined {
  const token = (option ?? host?.env["FORKD_TOKEN"] ?? "").trim();
  if (token === "") return undefined;
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new InvalidRequestError("BAD_REQUEST", "The token is not valid: it has characters that no token has.", {
      hint: "Check FORKD_TOKEN, or the token option.",
    });
  }
  return token;
}

/** The project to name; undefined: that of the token */
export function resolveProject(option: string | undefined, host: Host | undefined): string | undefined {
  const project = (option ?? host?.env["FORKD_PROJECT"] ?? "").trim();
  if (project === "") return undefined;
  if (!/^(\*|[\w.-]{1,64})$/.test(project)) {
    throw new InvalidRequestError("BAD_NAME", `${JSON.stringify(project)} is not the name of a project.`, {
      hint: "Check FORKD_PROJECT, or the project option.",
    });
  }
  return project;
}

/** Node, Deno and Bun have `process`; browsers do not */
export function currentHost(): Host | undefined {
  const { process, document } = globalThis as {
    process?: {
      env?: Env;
      getuid?: () => number;
      cwd?: () => string;
      versions?: { node?: string };
      getBuiltinModule?: (id: string) => unknown;
    };
    document?: unknown;
  };
  if (process?.env === undefined || process.versions?.node === undefined || document !== undefined) return undefined;
  // no import, not even a dynamic one: browsers load this file, and the result is needed synchronously
  const fs = process.getBuiltinModule?.("fs") as { realpathSync: (path: string) => string } | undefined;
  const realPath = fs && ((path: string) => fs.realpathSync(path));
  return { env: process.env, uid: process.getuid?.() ?? 0, cwd: process.cwd?.() ?? "/", realPath };
}

/** Address shown to users and in errors */
export function describeTarget(target: Target): string {
  return target.kind === "unix" ? `unix://${target.socket}` : target.url;
}

/** As in the daemon: a store other than the default one has a run folder named after it */
function defaultSocket(host: Host): string {
  const { env, uid } = host;
  if (env["FORKD_RUN"]) return `${absolute(env["FORKD_RUN"], host)}/forkd.sock`;
  const temporary = env["TMPDIR"] || env["TMP"] || env["TEMP"] || "/tmp";
  const base = absolute(env["XDG_RUNTIME_DIR"] ? `${env["XDG_RUNTIME_DIR"]}/forkd` : `${temporary}/forkd-${uid}`, host);
  if (!env["FORKD_HOME"]) return `${base}/forkd.sock`;
  const usual = uid === 0 ? "/var/lib/forkd" : `${env["XDG_DATA_HOME"] || `${env["HOME"] ?? ""}/.local/share`}/forkd`;
  const [home, known] = [env["FORKD_HOME"], usual].map((path) => realOf(absolute(path, host), host));
  return home === known ? `${base}/forkd.sock` : `${base}-${storeId(home ?? "")}/forkd.sock`;
}

/** FNV-1a, 64 bits */
function storeId(path: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(path)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return hash.toString(16).padStart(16, "0");
}

function absolute(path: string, host: Host | undefined): string {
  const names: string[] = [];
  for (const name of (path.startsWith("/") ? path : `${host?.cwd ?? ""}/${path}`).split("/")) {
    if (name === "..") names.pop();
    else if (name !== "" && name !== ".") names.push(name);
  }
  return `/${names.join("/")}`;
}

/** Resolves links in the part of the path that exists */
function realOf(path: string, host: Host | undefined): string {
  if (host?.realPath === undefined || path === "/") return path;
  try {
    return host.realPath(path);
  } catch {
    // the path does not exist, or is not readable
    const at = path.lastIndexOf("/");
    const parent = realOf(path.slice(0, at) || "/", host);
    return `${parent === "/" ? "" : parent}${path.slice(at)}`;
  }
}

function parseUrl(text: string): Target {
  const unix = /^unix:(?:\/\/)?(\/.+)$/.exec(text)?.[1];
  if (unix !== undefined) return { kind: "unix", socket: unix };
  const isHttp = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
  if (!isHttp) {
    throw new InvalidRequestError("BAD_REQUEST", `${JSON.stringify(text)} is not an address of a daemon.`, {
      hint: "Use http://HOST:PORT, https://HOST:PORT or unix:///PATH.",
    });
  }
  return { kind: "url", url: text.replace(/\/+$/, "") };
}

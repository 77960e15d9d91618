// Where the daemon is: option, then environment, then the default of the place this runs in.

import { InvalidRequestError } from "./errors.ts";

const DEFAULT_URL = "http://127.0.0.1:8889";

/** A Unix socket, or the URL that paths are appended to */
export type Target =
  | {
      kind: "unix";
      socket: string;
      /** Nobody chose this path: its folder must belong to this user, or somebody else may listen there */
      uid?: number;
    }
  | { kind: "url"; url: string };

type Env = { readonly [name: string]: string | undefined };

/** What server runtimes have and browsers do not */
export type Host = { env: Env; uid: number };

/** `unix:///path` and `unix:/path` name a socket, everything else is http or https */
export function resolveTarget(opts: { url?: string | undefined; socket?: string | undefined }, host: Host | undefined): Target {
  if (opts.url) return parseUrl(opts.url);
  if (opts.socket) return { kind: "unix", socket: opts.socket };
  if (host === undefined) return { kind: "url", url: DEFAULT_URL };
  if (host.env["FORKD_URL"]) return parseUrl(host.env["FORKD_URL"]);
  // Never the port as a second try: on a shared machine it may be somebody else's daemon.
  if (host.env["FORKD_SOCKET"]) return { kind: "unix", socket: host.env["FORKD_SOCKET"] };
  return { kind: "unix", socket: `${runFolder(host)}/forkd.sock`, uid: host.uid };
}

/** The token to send; one that cannot be a header is refused before anything is sent */
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

/** Node, Deno and Bun have `process`; a page has not */
export function currentHost(): Host | undefined {
  const { process, document } = globalThis as {
    process?: { env?: Env; getuid?: () => number; versions?: { node?: string } };
    document?: unknown;
  };
  if (process?.env === undefined || process.versions?.node === undefined || document !== undefined) return undefined;
  return { env: process.env, uid: process.getuid?.() ?? 0 };
}

/** How a target is shown and how its requests are named in errors */
export function describeTarget(target: Target): string {
  return target.kind === "unix" ? `unix://${target.socket}` : target.url;
}

/** The same folder as the daemon's own */
function runFolder({ env, uid }: Host): string {
  if (env["FORKD_RUN"]) return env["FORKD_RUN"];
  if (env["XDG_RUNTIME_DIR"]) return `${env["XDG_RUNTIME_DIR"]}/forkd`;
  const temporary = env["TMPDIR"] || env["TMP"] || env["TEMP"] || "/tmp";
  return `${temporary.length > 1 ? temporary.replace(/\/$/, "") : temporary}/forkd-${uid}`;
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

// Which requests are for a server inside a sandbox: by their path, or by a host name of its own.

import type { IncomingHttpHeaders } from "node:http";

const BY_PATH = /^(\/v1\/sandboxes\/([^/?#]+)\/proxy\/([^/?#]+))(.*)$/s;
/** Only this beginning makes a host name one of a sandbox: other names below the domain are the API's */
const BY_HOST = /^(\d+)-([a-z0-9-]+)\.(.+?)\.?(?::\d+)?$/;
/** As clients of proxies write it */
const ABSOLUTE = /^https?:\/\/[^/?#]*/i;
const DEFAULT_PORTS: Record<string, string> = { http: "80", https: "443" };

export type Address = {
  by: "path" | "host";
  /** id or name of a sandbox, as it was written */
  id: string;
  port: string;
  /** what stands before the guest's own path */
  prefix: string;
  /** path and query for the guest, byte for byte */
  path: string;
};

/** A request as far as its address goes */
export type Addressed = { url?: string | undefined; headers: Pick<IncomingHttpHeaders, "host"> };

/** The setting `proxy_domain`: a name, and what browsers find in front of and behind it, where that is not the daemon's own */
export type Domain = { name: string; scheme: string | undefined; port: string | undefined };

export function splitDomain(setting: string): Domain {
  const [, scheme, name = "", port] = /^(?:(https?):\/\/)?([^:/]+)(?::(\d+))?$/.exec(setting) ?? [];
  return { name, scheme, port };
}

/** `domain` null: host names mean nothing */
export function addressOf({ url = "", headers }: Addressed, domain: Domain | null): Address | null {
  const byHost = domain && hostOf(headers.host, domain);
  // whatever the path is: nothing of the API can be reached under a guest's name
  if (byHost) return { by: "host", ...byHost, prefix: "", path: url === "*" ? url : rooted(url.replace(ABSOLUTE, "")) };
  const [, prefix, id, port, rest = ""] = BY_PATH.exec(url) ?? [];
  if (prefix === undefined || id === undefined || port === undefined) return null;
  return { by: "path", id, port, prefix, path: rooted(rest) };
}

/** The sandbox and the port that a host name means */
export function hostOf(host: string | undefined, domain: Domain): Pick<Address, "id" | "port"> | null {
  const [, port, id, name] = BY_HOST.exec(host?.toLowerCase() ?? "") ?? [];
  return port === undefined || id === undefined || name !== domain.name ? null : { id, port };
}

/** Where the router finds it. What lies behind the port belongs to the guest, and the router sees nothing of it */
export function routedUrl({ id, port, by }: Address): string {
  return `/v1/sandboxes/${by === "host" ? encodeURIComponent(id) : id}/proxy/${port}`;
}

/** Where browsers find the servers of sandboxes, such as `http://localhost:8889`; null: nowhere */
export function proxyOrigin(domain: Domain | null, served: { bind: string | null; tls: boolean }): string | null {
  if (!domain || (served.bind === null && domain.scheme === undefined)) return null;
  const scheme = domain.scheme ?? (served.tls ? "https" : "http");
  const port = domain.port ?? (domain.scheme === undefined ? served.bind?.replace(/^.*:/, "") : undefined);
  return `${scheme}://${domain.name}${port === undefined || port === DEFAULT_PORTS[scheme] ? "" : `:${port}`}`;
}

/** The address of one server below that origin */
export function serverUrl(origin: string, id: string, port: number): string {
  return `${origin.replace("://", `://${port}-${id}.`)}/`;
}

function rooted(path: string): string {
  return path.startsWith("/") ? path : `/${path}`;
}

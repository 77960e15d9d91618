// Host names of guest servers: parsing of PORT-ID.DOMAIN, and the URLs for browsers.

import type { Config } from "../config.ts";

/** PORT-ID.DOMAIN; every other name below the domain belongs to the API */
const BY_HOST = /^(\d+)-([a-z0-9-]+)\.(.+?)\.?(?::\d+)?$/;
const DEFAULT_PORTS: Record<string, string> = { http: "80", https: "443" };

/** Query parameter of a preview link; the proxy replaces it with a cookie */
export const PREVIEW_PARAMETER = "forkd_preview";

/** Parsed setting `proxy_domain`: a name, and scheme and port if a reverse proxy changes them */
export type Domain = { name: string; scheme: string | undefined; port: string | undefined };

type Served = { bind: string | null; tls: boolean };

export function splitDomain(setting: string): Domain {
  const [, scheme, name = "", port] = /^(?:(https?):\/\/)?([^:/]+)(?::(\d+))?$/.exec(setting) ?? [];
  return { name, scheme, port };
}

export function domainOf({ proxyDomain }: Pick<Config, "proxyDomain">): Domain | null {
  return proxyDomain === null ? null : splitDomain(proxyDomain);
}

/** Sandbox and port of a host name; null: the name is not below the domain */
export function hostOf(host: string | undefined, domain: Domain): { id: string; port: string } | null {
  const [, port, id, name] = BY_HOST.exec(host?.toLowerCase() ?? "") ?? [];
  return port === undefined || id === undefined || name !== domain.name ? null : { id, port };
}

/** Origin of the guest servers for browsers, such as `http://localhost:8889`; null: host names are disabled */
export function proxyOrigin(domain: Domain | null, served: Served): string | null {
  if (!domain || (served.bind === null && domain.scheme === undefined)) return null;
  const scheme = domain.scheme ?? (served.tls ? "https" : "http");
  const port = domain.port ?? (domain.scheme === undefined ? served.bind?.replace(/^.*:/, "") : undefined);
  return `${scheme}://${domain.name}${port === undefined || port === DEFAULT_PORTS[scheme] ? "" : `:${port}`}`;
}

/** Same, from the daemon's settings */
export function originOf({ config, daemon }: { config: { values: Pick<Config, "proxyDomain"> }; daemon: Served }): string | null {
  return proxyOrigin(domainOf(config.values), daemon);
}

/** URL of one guest server below the origin */
export function serverUrl(origin: string, id: string, port: number): string {
  return `${origin.replace("://", `://${port}-${id}.`)}/`;
}

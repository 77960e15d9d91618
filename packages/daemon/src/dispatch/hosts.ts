// Host header check against DNS rebinding, for listeners without TLS. Without it a foreign site could resolve its name
// to this machine, and a browser would let its pages read the responses.

import { isIP } from "node:net";
import { ForkdError } from "@forkd/runtime/errors";
import { splitBind, type Config } from "../config.ts";
import { splitDomain } from "./proxy-domain.ts";

const MAX_SHOWN = 100;

export type HostCheck = (host: string | undefined) => void;

/** Throws FORBIDDEN for a foreign Host. IP addresses are allowed, because DNS rebinding needs a name */
export function hostCheck({ allowedHosts, bind, proxyDomain }: Pick<Config, "allowedHosts" | "bind" | "proxyDomain">): HostCheck {
  if (allowedHosts === "*") return () => undefined;
  const domains = ["localhost", ...(proxyDomain === null ? [] : [splitDomain(proxyDomain).name])];
  const names = new Set([...domains, ...(bind === null ? [] : [splitBind(bind).host.toLowerCase()]), ...(allowedHosts?.split(",") ?? [])]);
  return (host) => {
    // HTTP/1.0 clients may omit Host; browsers always send it
    if (host === undefined) return;
    const name = nameOf(host);
    if (isIP(name) !== 0 || names.has(name) || domains.some((domain) => name.endsWith(`.${domain}`))) return;
    throw new ForkdError("FORBIDDEN", `Cannot serve this: the request is for the host ${JSON.stringify(host.slice(0, MAX_SHOWN))}.`, {
      hint: "Use an address of the daemon, or give its name in the setting `allowed_hosts`.",
    });
  };
}

/** Host name without brackets, port and trailing dot */
function nameOf(host: string): string {
  const [, bracketed, plain = ""] = /^(?:\[([^\]]*)\]|([^:]*?)\.?)(?::\d*)?$/.exec(host) ?? [];
  return (bracketed ?? plain).toLowerCase();
}

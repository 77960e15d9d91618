// Locations of packs: a URL, a name in an OCI registry, or an alias of an index.

import { ForkdError } from "../errors.ts";
import { parseReference } from "../oci/reference.ts";
import type { ImageReference } from "../oci/reference.ts";

const ALIAS = /^([a-z0-9][a-z0-9._-]{0,63}\/[a-z0-9][a-z0-9._-]{0,63})(?:@([A-Za-z0-9_][A-Za-z0-9._-]{0,63}))?$/;
const HINT = "Name https://…, oci://HOST/NAME[:TAG], or OWNER/NAME[@VERSION] of a hub.";

export type Place =
  | { kind: "http"; url: URL; shown: string }
  | { kind: "oci"; reference: ImageReference; shown: string }
  | { kind: "alias"; name: string; version: string; shown: string };

/** `shown` is for messages and events: without the query, which may contain access rights */
export function parsePlace(text: string): Place {
  if (text.startsWith("oci://")) {
    const reference = ociReference(text);
    return { kind: "oci", reference, shown: `oci://${reference.canonical}` };
  }
  if (/^https?:/i.test(text)) {
    const url = webAddress(text);
    return { kind: "http", url, shown: withoutQuery(url) };
  }
  const [, name, version = "latest"] = ALIAS.exec(text) ?? [];
  if (name !== undefined) return { kind: "alias", name, version, shown: `${name}@${version}` };
  throw new ForkdError("BAD_REQUEST", `Invalid location ${JSON.stringify(safe(text))}: it is neither an address nor a name.`, {
    hint: HINT,
  });
}

/** With its port, as in URLs */
export function hostOf(place: Exclude<Place, { kind: "alias" }>): string {
  return place.kind === "oci" ? place.reference.host : place.url.host;
}

/** The URL of a web server; credentials in it are refused, because logs and events would show them */
export function webAddress(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new ForkdError("BAD_REQUEST", `${JSON.stringify(safe(text))} is not an http or https address.`, { hint: HINT });
  }
  if (url.username !== "" || url.password !== "") {
    throw new ForkdError("BAD_REQUEST", `Refused the address of ${url.host}: it has a login in it.`, {
      hint: "Give the login by itself (FORKD_REGISTRY_USER, FORKD_REGISTRY_PASSWORD).",
    });
  }
  url.hash = "";
  return url;
}

export function withoutQuery(url: URL): string {
  return `${url.origin}${url.pathname}`;
}

function ociReference(text: string): ImageReference {
  const rest = text.slice("oci://".length);
  if (!/^[^/]*[.:][^/]*\/|^localhost\//.test(rest)) {
    throw new ForkdError("BAD_REQUEST", `${JSON.stringify(safe(text))} names no registry: its host is missing.`, { hint: HINT });
  }
  return parseReference(rest);
}

/** For a malformed location: only parts that cannot be a secret */
function safe(text: string): string {
  return (text.split("?")[0] ?? "").replace(/\/\/[^/@]*@/, "//…@").slice(0, 200);
}

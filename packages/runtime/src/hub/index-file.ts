// The index of a hub: one JSON file with the addresses and digests of packs by name and version.

import * as z from "zod";
import { ForkdError, messageOf } from "../errors.ts";
import { isLoopback } from "../oci/reference.ts";
import { HttpClient } from "./http-client.ts";
import type { HttpOpts } from "./http-client.ts";
import { hostOf, parsePlace, webAddress, withoutQuery } from "./place.ts";
import type { Place } from "./place.ts";
import { schemaProblem } from "../util/schema-problem.ts";

const MAX_INDEX_BYTES = 16 * 1024 ** 2;

const sum = z.string().regex(/^[0-9a-f]{64}$/, "must be 64 hexadecimal digits");

const indexEntry = z.looseObject({
  url: z.string().min(1).max(4096),
  /** of the complete file, or of the manifest in a registry */
  sha256: sum.nullish(),
  /** of the pack's own manifest, which has the digest of every part, so that single parts can be fetched */
  manifest_sha256: sum.nullish(),
  /** fingerprint of the key that must have signed it */
  key: z.string().min(1).max(200).nullish(),
  size_bytes: z.int().nonnegative().nullish(),
  memory_mib: z.number().nonnegative().nullish(),
  base_image: z.string().nullish(),
  created_at: z.string().nullish(),
});

const hubIndex = z.looseObject({
  schema_version: z.literal(1),
  packages: z.record(
    z.string().max(200),
    z.looseObject({
      description: z.string().nullish(),
      /** an entry, or the name of another version */
      versions: z.record(z.string().max(100), z.union([indexEntry, z.string().max(100)])),
    }),
  ),
});

export type IndexEntry = z.infer<typeof indexEntry>;
export type HubIndex = z.infer<typeof hubIndex> & { url: URL };

export type HubVersion = {
  version: string;
  url: string;
  sha256: string | null;
  manifest_sha256: string | null;
  key: string | null;
  size_bytes: number | null;
  memory_mib: number | null;
  base_image: string | null;
  created_at: string | null;
};

/** The content of a hub, as the API shows it */
export type HubListing = {
  hub: string;
  packages: { name: string; description: string | null; latest: string | null; versions: HubVersion[] }[];
};

/** The target of an alias */
export type IndexedPack = {
  place: Exclude<Place, { kind: "alias" }>;
  version: string;
  sha256: string | undefined;
  manifestSha256: string | undefined;
  key: string | undefined;
};

/** @param hub its address; undefined when none is set */
export async function readIndex(hub: string | undefined, opts: Pick<HttpOpts, "insecureHttp" | "signal">): Promise<HubIndex> {
  if (hub === undefined) throw new ForkdError("HUB_MISSING", "No hub is configured.");
  const url = webAddress(hub);
  const client = new HttpClient(url, opts);
  const data = await client.read(MAX_INDEX_BYTES);
  try {
    return { ...hubIndex.parse(JSON.parse(data.toString("utf8"))), url };
  } catch (error) {
    const why = error instanceof z.ZodError ? schemaProblem(error) : messageOf(error);
    throw client.failure(`Cannot use the index at ${client.shown}: ${why}.`, error);
  }
}

export function findInIndex(index: HubIndex, alias: { name: string; version: string }): IndexedPack {
  const hub = withoutQuery(index.url);
  const known = Object.hasOwn(index.packages, alias.name) ? index.packages[alias.name] : undefined;
  if (known === undefined)
    throw new ForkdError("NOT_FOUND", `The hub ${hub} has no ${alias.name}.`, { hint: "'forkd hub ls' lists its content." });
  const { version, entry } = versionOf(known.versions, alias.version);
  const what = `${alias.name}@${version}`;
  if (entry === undefined) {
    throw new ForkdError("NOT_FOUND", `The hub ${hub} has no ${what}.`, {
      hint: `Its versions are: ${Object.keys(known.versions).join(", ") || "none"}.`,
    });
  }
  const place = placeOf(entry.url, index.url);
  const isPinned = place.kind === "oci" && place.reference.digest !== undefined;
  if (!entry.sha256 && !entry.manifest_sha256 && !entry.key && !isPinned) {
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${what} of ${hub}: the index names neither its sum nor the key that signed it.`, {
      hint: "Ask the maintainer of the index to add sha256, or pull from the address itself if you trust it.",
    });
  }
  return {
    place,
    version,
    sha256: entry.sha256 ?? undefined,
    manifestSha256: entry.manifest_sha256 ?? undefined,
    key: entry.key ?? undefined,
  };
}

/** The list of names and versions */
export function listingOf(index: HubIndex): HubListing {
  const packages = Object.entries(index.packages).map(([name, { description, versions }]) => {
    const { version: latest, entry } = versionOf(versions, "latest");
    return {
      name,
      description: description ?? null,
      latest: entry === undefined ? null : latest,
      versions: Object.entries(versions).flatMap(([version, one]) =>
        typeof one === "string" ? [] : [versionInfo(version, one, index.url)],
      ),
    };
  });
  return { hub: withoutQuery(index.url), packages: packages.toSorted((a, b) => (a.name < b.name ? -1 : 1)) };
}

function versionInfo(version: string, entry: IndexEntry, base: URL): HubVersion {
  return {
    version,
    url: placeOf(entry.url, base).shown,
    sha256: entry.sha256 ?? null,
    manifest_sha256: entry.manifest_sha256 ?? null,
    key: entry.key ?? null,
    size_bytes: entry.size_bytes ?? null,
    memory_mib: entry.memory_mib ?? null,
    base_image: entry.base_image ?? null,
    created_at: entry.created_at ?? null,
  };
}

/** An entry, or the entry that an alias names */
function versionOf(versions: Record<string, IndexEntry | string>, name: string): { version: string; entry: IndexEntry | undefined } {
  const found = Object.hasOwn(versions, name) ? versions[name] : undefined;
  if (typeof found !== "string") return { version: name, entry: found };
  const entry = Object.hasOwn(versions, found) ? versions[found] : undefined;
  return { version: found, entry: typeof entry === "string" ? undefined : entry };
}

/** Relative to the index unless absolute */
function placeOf(url: string, base: URL): IndexedPack["place"] {
  const isWhole = /^[a-z][a-z0-9+.-]*:/i.test(url);
  if (!isWhole && !URL.canParse(url, base.href)) throw new ForkdError("HUB_FAILED", "The index has an invalid address.");
  const place = parsePlace(isWhole ? url : new URL(url, base).href);
  if (place.kind === "alias") throw new ForkdError("HUB_FAILED", "The index has an alias in place of an address.");
  // a remote index must not name servers of this machine
  if (isLoopback(hostOf(place)) && !isLoopback(base.host))
    throw new ForkdError("HUB_FAILED", `Refused: the index at ${base.host} names an address of this machine.`);
  return place;
}

// Headers of one connection, which no proxy forwards, in `rawHeaders` form: order, case and repetitions are kept.

/** Connection-level headers, which are not forwarded */
const HOP_BY_HOP = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Hop-by-hop headers: the fixed ones, and those listed in Connection */
export function hopsOf(raw: readonly string[]): ReadonlySet<string> {
  let hops: Set<string> | undefined;
  for (const [name, value] of pairsOf(raw)) {
    if (name.toLowerCase() !== "connection") continue;
    hops ??= new Set(HOP_BY_HOP);
    for (const named of value.split(",")) hops.add(named.trim().toLowerCase());
    // `Connection: content-length` must not strip Content-Length (request smuggling)
    hops.delete("content-length");
  }
  return hops ?? HOP_BY_HOP;
}

export function* pairsOf(raw: readonly string[]): Generator<[name: string, value: string]> {
  for (let at = 0; at + 1 < raw.length; at += 2) yield [raw[at] ?? "", raw[at + 1] ?? ""];
}

// Cases for packs and keys. Most packs leave out the receiver's snapshots. tests/e2e/packs.test.ts tests their content.

import { above, excluding, fails, gives, including, REST_AND_SDK, size, type Case } from "./case.ts";

const HEX = /^[0-9a-f]{64}$/;
const FRIEND = "forkd-ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

export const packCases: Case[] = [
  {
    what: "a key of the daemon's own",
    route: "createKey",
    args: (c) => ({ body: { name: c.name("own") } }),
    expect: (c) => gives({ name: c.name("own"), kind: "own", id: HEX, public_key: /^forkd-ed25519:/, created_at_unix: above(1e9) }, 201),
    save: "key",
  },
  { what: "a name is one key's", route: "createKey", args: (c) => ({ body: { name: c.name("own") } }), expect: fails("EXISTS") },
  {
    what: "a public key is trusted",
    route: "createKey",
    args: (c) => ({ body: { name: c.name("friend"), public_key: FRIEND } }),
    expect: gives({ kind: "trusted", public_key: FRIEND }, 201),
    save: "friend",
  },
  {
    what: "an invalid key",
    route: "createKey",
    args: (c) => ({ body: { name: c.name("none"), public_key: "forkd-ed25519:AAAA" } }),
    expect: fails("BAD_REQUEST"),
  },
  {
    what: "all keys",
    route: "listKeys",
    expect: (c) => gives(including({ name: c.name("own"), id: c.at("key.id") }, { name: c.name("friend"), kind: "trusted" })),
  },
  {
    what: "one key, by the beginning of its id",
    route: "getKey",
    args: (c) => ({ params: { name: c.at("key.id").slice(0, 16) } }),
    expect: (c) => gives({ name: c.name("own"), public_key: c.at("key.public_key") }),
  },
  { what: "no key", route: "getKey", args: () => ({ params: { name: "nobody" } }), expect: fails("NOT_FOUND") },

  {
    what: "the contents of a pack",
    route: "preparePack",
    args: () => ({ params: { tag: "python" }, body: { level: 1 } }),
    expect: gives({
      tag: "python",
      level: 1,
      signed_by: [],
      snapshots: size(1),
      bytes: above(1e6),
      blobs: including({ kind: "memory", included: true, bytes: above(1e6) }, { kind: "state" }, { kind: "image" }),
    }),
    not: REST_AND_SDK("`pack` does both"),
  },
  {
    what: "without the snapshots that the receiver has",
    route: "preparePack",
    args: (c) => ({ params: { tag: "python" }, body: { level: 1, sign: c.name("own"), without: ["python"] } }),
    expect: (c) => gives({ signed_by: [c.at("key.id")], content_bytes: 0, blobs: excluding({ included: true }) }),
    not: REST_AND_SDK("`pack` does both"),
  },
  {
    what: "a pack",
    route: "readPack",
    args: (c) => ({ params: { tag: "python" }, query: { level: 1, sign: c.name("own"), without: "python" } }),
    expect: gives((value: unknown) => Buffer.isBuffer(value) && value.subarray(0, 16).toString() === "manifest/sha256/"),
    save: "pack",
  },
  { what: "a pack of a missing snapshot", route: "readPack", args: () => ({ params: { tag: "nothing" } }), expect: fails("NOT_FOUND") },
  {
    what: "an unsigned pack",
    route: "readPack",
    args: () => ({ params: { tag: "python" }, query: { sign: "nobody" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "a pack signed with an unknown key",
    route: "readPack",
    args: (c) => ({ params: { tag: "python" }, query: { sign: c.name("friend") } }),
    expect: fails("BAD_REQUEST", { message: () => /another signer/ }),
  },
  {
    what: "at a level that there is not",
    route: "readPack",
    args: () => ({ params: { tag: "python" }, query: { level: 77 } }),
    expect: fails("BAD_REQUEST", { usage: true }),
  },
  {
    what: "a pack of what is here already",
    route: "unpack",
    args: (c) => ({ bytes: c.get("pack") as Buffer }),
    expect: (c) => gives({ snapshot: { tag: "python" }, added: [], replaced: null, signed_by: c.at("key.id") }, 201),
  },
  {
    what: "under another name",
    route: "unpack",
    args: (c) => ({ query: { tag: c.name("other") }, bytes: c.get("pack") as Buffer }),
    expect: fails("EXISTS", { message: () => /as python/ }),
  },
  { what: "a file that is not a pack", route: "unpack", args: () => ({ bytes: Buffer.alloc(2000, "x") }), expect: fails("PACK_INVALID") },
  {
    what: "a pack that ends too early",
    route: "unpack",
    args: (c) => ({ bytes: (c.get("pack") as Buffer).subarray(0, 900) }),
    expect: fails("PACK_CORRUPT"),
  },

  { what: "a key goes", route: "deleteKey", args: (c) => ({ params: { name: c.name("own") } }), expect: gives(null) },
  { what: "a second key is removed", route: "deleteKey", args: (c) => ({ params: { name: c.name("friend") } }), expect: gives(null) },
  { what: "a missing key cannot be removed", route: "deleteKey", args: () => ({ params: { name: "nobody" } }), expect: fails("NOT_FOUND") },
  { what: "no key remains", route: "listKeys", expect: gives([]) },
];

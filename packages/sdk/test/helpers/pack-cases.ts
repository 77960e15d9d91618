// Calls about packs, and the expected requests.

import type { RouteName } from "../../../daemon/src/api/routes.ts";
import type { Controller } from "../../src/index.ts";

export type Case = {
  route: RouteName;
  call: (c: Controller) => unknown;
  params?: unknown;
  query?: unknown;
  body?: unknown;
  result?: unknown;
};

export const packCases: Case[] = [
  {
    route: "preparePack",
    call: (c) => c.preparePack("py", { level: 5, sign: "me", without: ["base"] }),
    params: { tag: "py" },
    body: { level: 5, sign: "me", without: ["base"] },
  },
  {
    route: "readPack",
    call: async (c) => Buffer.concat(await Array.fromAsync(c.readPack("py", { level: 5, without: ["a", "b"] }))).toString(),
    params: { tag: "py" },
    query: { level: 5, without: ["a", "b"] },
  },
  {
    route: "unpack",
    call: (c) => c.unpack("pack", { tag: "py", force: true, keepNetwork: true }),
    query: { tag: "py", force: true, keep_network: true },
  },
  { route: "listRecipes", call: (c) => c.listRecipes() },
  {
    route: "checkRecipe",
    call: (c) => c.checkRecipe("name: py", { folder: "py", set: { rows: "2" } }),
    body: { source: "name: py", folder: "py", set: { rows: "2" } },
  },
  {
    route: "buildRecipe",
    call: (c) => c.buildRecipe("py", { tag: "mine", set: { rows: "2", more: "a=b" }, test: true, noCache: true }),
    query: { recipe: "py", tag: "mine", set: ["rows=2", "more=a=b"], test: true, no_cache: true },
  },
  { route: "listKeys", call: (c) => c.listKeys() },
  {
    route: "createKey",
    call: (c) => c.createKey("me", { publicKey: "forkd-ed25519:x" }),
    body: { name: "me", public_key: "forkd-ed25519:x" },
  },
  { route: "getKey", call: (c) => c.getKey("me"), params: { name: "me" } },
  { route: "deleteKey", call: (c) => c.deleteKey("me"), params: { name: "me" } },
];

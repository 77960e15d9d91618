// Command lines for the cases of packs, keys and hubs.

import { readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { options, text, when } from "./words.ts";
import type { Lines } from "./cli-driver.ts";

export const packLines: Lines = {
  readPack: ({ params, query }) => {
    const file = join(tmpdir(), `forkd-contract-${process.pid}.forkd`);
    return {
      argv: ["pack", text(params["tag"]), "-o", file, ...options(query, { level: "--level", sign: "--sign", without: "--without" })],
      value: () => {
        const bytes = readFileSync(file);
        rmSync(file);
        return bytes;
      },
    };
  },
  unpack: ({ query, bytes }) => ({
    argv: [
      "unpack",
      "-",
      ...options(query, { tag: "--tag" }),
      ...when(query["force"], "--force"),
      ...when(query["keep_network"], "--keep-network"),
    ],
    stdin: bytes ?? "",
  }),
  listKeys: () => ({ argv: ["key", "ls"] }),
  createKey: ({ body }) => {
    const key = body["public_key"];
    return { argv: key === undefined ? ["key", "new", text(body["name"])] : ["key", "trust", text(body["name"]), text(key)] };
  },
  getKey: ({ params }) => ({ argv: ["key", "show", text(params["name"])] }),
  deleteKey: ({ params }) => ({ argv: ["key", "rm", text(params["name"])], value: () => null }),
  pushSnapshot: ({ params, body }) => ({ argv: ["push", text(params["tag"]), text(body["to"])] }),
  pullSnapshot: ({ body }) => ({ argv: ["pull", text(body["from"]), ...options(body, { tag: "--tag", hub: "--hub" })] }),
  listHub: ({ query }) => ({ argv: ["hub", "ls", ...options(query, { hub: "--hub" })] }),
};

// REST handlers: packs and keys.

import { Readable } from "node:stream";
import { packRoutes } from "../../api/pack.ts";
import { readPieces } from "../../streams/body.ts";
import type { Handlers } from "../handler.ts";

export const packHandlers: Pick<Handlers, keyof typeof packRoutes> = {
  preparePack: async ({ params, body }, { services, caller }) => {
    return { status: 201, body: await services.manager.packs.info(params.tag, body, caller) };
  },
  readPack: async ({ params, query }, { services, caller }) => {
    const { bytes, size } = await services.manager.packs.read(params.tag, query, caller);
    const headers = { "content-type": packRoutes.readPack.media, "content-length": String(size) };
    return { status: 200, body: Readable.from(bytes, { objectMode: false }), headers };
  },
  unpack: async ({ query, body }, { services, caller }) => {
    const bytes = readPieces(body, services.limits);
    return { status: 201, body: await services.manager.packs.unpack(bytes, query, caller) };
  },
  listKeys: async (_input, { services }) => ({ status: 200, body: await services.manager.packs.keys() }),
  createKey: async ({ body }, { services }) => ({ status: 201, body: await services.manager.packs.createKey(body) }),
  getKey: async ({ params }, { services }) => ({ status: 200, body: await services.manager.packs.key(params.name) }),
  deleteKey: async ({ params }, { services }) => {
    await services.manager.packs.removeKey(params.name);
    return { status: 204 };
  },
};

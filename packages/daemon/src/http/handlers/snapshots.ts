// Handlers of images and snapshots.

import { ForkdError } from "../../errors.ts";
import { nextPage } from "../handler.ts";
import type { snapshotRoutes } from "../../api/routes/snapshots.ts";
import type { Handlers } from "../handler.ts";

export const snapshotHandlers: Pick<Handlers, keyof typeof snapshotRoutes> = {
  listImages: async (_input, { services }) => ({ status: 200, body: await services.manager.images.list() }),
  createImage: async ({ body }, { services, caller }) => ({ status: 201, body: await services.manager.images.create(body, caller) }),
  getImage: async ({ params }, { services }) => ({ status: 200, body: await services.manager.images.get(params.name) }),
  deleteImage: async ({ params }, { services, caller }) => {
    await services.manager.images.remove(params.name, caller);
    return { status: 204 };
  },

  listSnapshots: async ({ query }, { services }) => {
    const { items, nextCursor } = await services.manager.snapshots.list(query);
    return { status: 200, body: items, ...nextPage(nextCursor) };
  },
  createSnapshot: async ({ body }, { services, caller }) => ({ status: 201, body: await services.manager.snapshots.create(body, caller) }),
  getSnapshot: async ({ params }, { services }) => ({ status: 200, body: await services.manager.snapshots.get(params.tag) }),
  updateSnapshot: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.snapshots.update(params.tag, body, caller) };
  },
  deleteSnapshot: async ({ params, query }, { services, caller }) => {
    await services.manager.snapshots.remove(params.tag, query, caller);
    return { status: 204 };
  },
  getSnapshotDetails: async ({ params }, { services }) => ({ status: 200, body: await services.manager.snapshots.details(params.tag) }),
  compactSnapshot: async ({ params, body }, { services, caller }) => {
    if (body.to === params.tag)
      throw new ForkdError("BAD_REQUEST", `Cannot compact snapshot ${params.tag} onto itself: the copy needs another tag.`);
    return { status: 200, body: await services.manager.snapshots.compact(params.tag, body.to, caller) };
  },
};

// REST handlers: snapshots.

import { ForkdError } from "@forkd/runtime/errors";
import { nextPage } from "../handler.ts";
import type { snapshotRoutes } from "../../api/snapshot.ts";
import type { Handlers } from "../handler.ts";

export const snapshotHandlers: Pick<Handlers, keyof typeof snapshotRoutes> = {
  listSnapshots: async ({ query }, { services, caller }) => {
    const { items, nextCursor } = await services.manager.snapshots.list(query, caller);
    return { status: 200, body: items, ...nextPage(nextCursor) };
  },
  createSnapshot: async ({ body }, { services, caller }) => ({ status: 201, body: await services.manager.snapshots.create(body, caller) }),
  getSnapshot: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.snapshots.get(params.tag, caller),
  }),
  updateSnapshot: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.snapshots.update(params.tag, body, caller) };
  },
  deleteSnapshot: async ({ params, query }, { services, caller }) => {
    await services.manager.snapshots.remove(params.tag, query, caller);
    await services.recipes.forget(params.tag, caller);
    return { status: 204 };
  },
  getSnapshotDetails: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.snapshots.details(params.tag, caller),
  }),
  compactSnapshot: async ({ params, body }, { services, caller }) => {
    if (body.to === params.tag)
      throw new ForkdError("BAD_REQUEST", `Cannot compact snapshot ${params.tag} onto itself: the copy needs another tag.`);
    return { status: 200, body: await services.manager.snapshots.compact(params.tag, body.to, caller) };
  },
};

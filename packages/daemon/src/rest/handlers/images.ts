// REST handlers: images.

import type { imageRoutes } from "../../api/image.ts";
import type { Handlers } from "../handler.ts";

export const imageHandlers: Pick<Handlers, keyof typeof imageRoutes> = {
  listImages: async (_input, { services, caller }) => ({ status: 200, body: await services.manager.images.list(caller) }),
  createImage: async ({ body }, { services, caller }) => ({ status: 201, body: await services.manager.images.create(body, caller) }),
  getImage: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.images.get(params.name, caller),
  }),
  deleteImage: async ({ params }, { services, caller }) => {
    await services.manager.images.remove(params.name, caller);
    return { status: 204 };
  },
};

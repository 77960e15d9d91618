// REST handlers: recipes.

import { REGISTRY_AUTH_HEADER, registryAuth, type recipeRoutes } from "../../api/recipes.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { readPieces } from "../../streams/body.ts";
import type { Handlers } from "../handler.ts";

export const recipeHandlers: Pick<Handlers, keyof typeof recipeRoutes> = {
  listRecipes: async (_input, { services }) => ({ status: 200, body: await services.recipes.list() }),
  checkRecipe: ({ body }, { services }) => ({ status: 200, body: services.recipes.check(body) }),
  buildRecipe: async ({ query, body }, { services, caller, headers }) => {
    const login = loginOf(headers[REGISTRY_AUTH_HEADER]);
    return { status: 201, body: await services.recipes.build(query, readPieces(body, services.limits), caller, login) };
  },
};

/** Error messages omit the value, which is a secret */
function loginOf(header: string | string[] | undefined): { username: string; password: string } | undefined {
  if (header === undefined) return undefined;
  try {
    return registryAuth.parse(JSON.parse(Buffer.from(String(header), "base64").toString()));
  } catch {
    throw new ForkdError(
      "BAD_REQUEST",
      `Cannot read the header ${REGISTRY_AUTH_HEADER}: it must be base64 of JSON with username and password.`,
    );
  }
}

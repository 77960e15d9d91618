// Tools about recipes. Only those that come with forkd: a recipe of a model's own could run commands on the daemon's machine while its
// image is made, and allow addresses of that machine's network.

import * as z from "zod";
import { badRequest } from "../errors.ts";
import { full, snapshotView } from "../fields.ts";
import { tool, type Tool } from "../tool.ts";

export const recipeTools: Tool[] = [
  tool({
    name: "list_recipes",
    title: "List recipes",
    kind: "read",
    description:
      "Ready environments that come with forkd, such as a browser, PostgreSQL or Jupyter. Build one with build_recipe when no snapshot fits.",
    input: z.strictObject({}),
    run: async (_args, { forkd, signal }) => ({ recipes: await forkd.listRecipes({ signal }) }),
  }),

  tool({
    name: "build_recipe",
    title: "Build a recipe into a snapshot",
    kind: "write",
    description:
      "Builds a recipe of list_recipes into a snapshot for spawn_sandboxes. The first build takes minutes; later ones repeat only what changed. " +
      "Needs a token of scope admin where the daemon is reached over the network.",
    input: z.strictObject({
      recipe: z.string().describe("Name of a recipe, from list_recipes"),
      tag: z.string().optional().describe("Tag of the snapshot; without it, the recipe's own"),
      set: z.record(z.string(), z.string()).optional().describe("Values of the recipe's variables"),
      test: z.boolean().optional().describe("Run the recipe's tests, which must pass"),
      full,
    }),
    run: async ({ recipe, full: isFull, ...opts }, { forkd, signal, progress }) => {
      // a path would name files of this machine
      if (recipe.includes("/") || recipe.startsWith("."))
        throw badRequest(`Cannot build ${recipe}: it is not the name of a recipe.`, "list_recipes has the names.");
      const built = await forkd.buildRecipe(recipe, { ...opts, onProgress: ({ step }) => progress(step), signal });
      const { snapshot, ...rest } = built;
      return { ...rest, snapshot: snapshotView(snapshot, isFull) };
    },
  }),
];

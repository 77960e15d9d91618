// Recipes: descriptions of snapshots, and their builds.

import * as z from "zod";
import { flag, name } from "./common.ts";
import { snapshotInfo } from "./snapshot.ts";
import type { Route } from "./route.ts";

const MAX_SOURCE = 256 * 1024;
const MAX_SET = 64;

const recipeInfo = z
  .strictObject({
    name: z.string(),
    tag: z.string().meta({ description: "Of its snapshot, unless a build names another one" }),
    description: z.string(),
    variables: z.record(z.string(), z.string()).meta({ description: "With their defaults" }),
  })
  .meta({ id: "Recipe" });

const checkRecipe = z
  .strictObject({
    source: z.string().max(MAX_SOURCE).meta({ description: "Content of a recipe.yaml" }),
    folder: name.optional().meta({ description: "Name of the recipe's folder, which must be the recipe's name" }),
    set: z.record(z.string(), z.string()).optional().meta({ description: "Values of variables" }),
  })
  .meta({ id: "CheckRecipe" });

const checkedRecipe = recipeInfo
  .extend({
    files: z.array(z.string()).meta({ description: "Paths of the files it needs, relative to its folder" }),
    base: z.string().nullable().meta({ description: "The recipe that it is built on" }),
    registry_reference: z.string().nullable().meta({ description: "The image that it pulls from a registry" }),
  })
  .meta({ id: "CheckedRecipe" });

const buildQuery = z.strictObject({
  recipe: name
    .optional()
    .meta({ description: "A folder of the archive, or a recipe that comes with forkd; without it, recipe.yaml at the top of the archive" }),
  tag: name.optional().meta({ description: "Of the snapshot; without it, the recipe's own" }),
  set: z
    .union([z.string(), z.array(z.string())])
    .transform((given) => (Array.isArray(given) ? given : [given]))
    .refine((pairs) => pairs.length <= MAX_SET && pairs.every((pair) => pair.indexOf("=") > 0), "must be key=value")
    .optional()
    .meta({ description: "key=value, may be repeated: the value of a variable" }),
  test: flag.meta({ description: "Run the recipe's tests; if one fails, the tag keeps the snapshot it has" }),
  no_cache: flag.meta({ description: "Repeat all steps, and make the image again" }),
});

const buildStep = z
  .strictObject({
    title: z.string(),
    ms: z.number(),
    cached: z.boolean().meta({ description: "An earlier build had completed it" }),
  })
  .meta({ id: "BuildStep" });

const builtRecipe = z
  .strictObject({
    tag: z.string(),
    unchanged: z.boolean().meta({ description: "The snapshot was up to date" }),
    ms: z.number(),
    steps: z.array(buildStep),
    tests: z.array(z.strictObject({ name: z.string(), ms: z.number() })).meta({ description: "Those that ran; all passed" }),
    snapshot: snapshotInfo,
  })
  .meta({ id: "BuiltRecipe" });

/** Header with the login for the registry of the recipe's image: base64 of a JSON object with `username` and `password` */
export const REGISTRY_AUTH_HEADER = "x-registry-auth";

export const registryAuth = z.strictObject({ username: z.string().max(1024), password: z.string().max(8192) });

export const recipeRoutes = {
  listRecipes: {
    method: "GET",
    path: "/v1/recipes",
    scope: "read",
    summary: "Lists the recipes that come with forkd",
    responses: { 200: z.array(recipeInfo) },
  },
  checkRecipe: {
    method: "POST",
    path: "/v1/recipes/check",
    scope: "read",
    summary: "Checks a recipe and lists the files that its build needs; builds nothing",
    body: checkRecipe,
    responses: { 200: checkedRecipe },
  },
  buildRecipe: {
    method: "POST",
    path: "/v1/recipes/build",
    scope: "admin",
    summary:
      "Builds a recipe into a snapshot; the body is a tar archive with the recipe and its files, or empty. Steps that did not change are not repeated",
    query: buildQuery,
    body: "bytes",
    responses: { 201: builtRecipe },
    media: "application/x-tar",
    progress: true,
  },
} as const satisfies Record<string, Route>;

export type RecipeInfo = z.infer<typeof recipeInfo>;
export type CheckRecipe = z.infer<typeof checkRecipe>;
export type CheckedRecipe = z.infer<typeof checkedRecipe>;
export type BuildQuery = z.infer<typeof buildQuery>;
export type BuiltRecipe = z.infer<typeof builtRecipe>;

// Public exports of the daemon package.

export { resolveConfig } from "./config.ts";
export { chainOf, loadLocal, startUp, waitUntilHealthy } from "./recipe/measure.ts";
export type { Guest } from "./recipe/guest.ts";
export type { FoundRecipe } from "./recipe/library.ts";

// The image that a recipe boots, under the recipe's name.

import { resolve } from "node:path";
import { ABORTABLE } from "../daemon.ts";
import { registryLogin, registryOf } from "../registry-login.ts";

import type { Controller, ImageSource } from "forkd";
import type { Cli } from "../cli.ts";
import type { FoundRecipe } from "./find.ts";

type Options = { /** also when one from the same packages is there */ force: boolean; onProgress: (event: { step: string }) => void };

/** The name under which the daemon has it */
export async function makeRecipeImage({ cli, forkd }: { cli: Cli; forkd: Controller }, found: FoundRecipe, opts: Options): Promise<string> {
  const { force, onProgress } = opts;
  const source = await imageSource(found, force);
  await forkd.createImage(source, { ...ABORTABLE, timeoutMs: 0, onProgress, signal: cli.signal });
  return found.recipe.name;
}

async function imageSource({ recipe, folder, wrong }: FoundRecipe, force: boolean): Promise<ImageSource> {
  const { name, image } = recipe;
  if (image.kind === "packages") return { name, packages: image.packages, run: image.run, force };
  if (image.kind === "oci") return { name, reference: image.oci, ...(await registryLogin(registryOf(image.oci))) };
  if (image.kind === "tar") return { name, file: resolve(folder, image.tar) };
  throw wrong(["image"], "begins with a snapshot, which has its image already");
}

// The image of a command: stored already, built from packages, or pulled.

import { createHash } from "node:crypto";
import { ABORTABLE } from "../daemon/connect.ts";
import { codeOf, usageError } from "../errors.ts";
import { imageNameOf, NAME } from "../options/names.ts";
import { printNote } from "../terminal/output.ts";
import { working } from "../terminal/progress.ts";
import { registryLogin, registryOf } from "../options/registry-login.ts";

import type { Controller, CreatedImageInfo, ImageSource } from "forkd";
import type { Cli } from "../cli.ts";

/** Short names of images that are built from packages */
const KNOWN = new Map([
  ["python3", ["python3"]],
  ["python-numpy", ["python3", "python3-numpy"]],
]);

/** Its name in the daemon */
export async function ensureImage(cli: Cli, forkd: Controller, image: string, opts: { packages?: string[] } = {}): Promise<string> {
  const source = await imageSource(image, opts.packages ?? []);
  const name = source.name ?? image;
  if (await isStored(cli, forkd, name)) return name;
  printNote(`Getting the image ${name}; it is kept for the next time.`);
  await makeImage(cli, forkd, source, `Getting the image ${name}`);
  return name;
}

/** No time limit; Ctrl-C cancels the work in the daemon too */
export async function makeImage(cli: Cli, forkd: Controller, source: ImageSource, step: string): Promise<CreatedImageInfo> {
  return working(step, async (onProgress) => forkd.createImage(source, { ...ABORTABLE, timeoutMs: 0, onProgress, signal: cli.signal }));
}

/** How to make an image that is not stored */
async function imageSource(image: string, packages: readonly string[]): Promise<ImageSource & { name: string }> {
  const known = KNOWN.get(image);
  if (packages.length > 0) {
    if (!NAME.test(image)) throw usageError(`Packages cannot be added to ${image}: an image is either pulled or built from packages.`);
    return { name: withPackages(image, packages), packages: [...(known ?? []), ...packages] };
  }
  if (known) return { name: image, packages: known };
  return {
    reference: image,
    name: NAME.test(image) ? image : imageNameOf(image),
    ...(await registryLogin(registryOf(image))),
  };
}

/** Other packages make another image, so the name contains their hash */
function withPackages(image: string, packages: readonly string[]): string {
  const hash = createHash("sha256")
    .update([...packages].sort().join("\n"))
    .digest("hex");
  return `${image.slice(0, 55)}-${hash.slice(0, 8)}`;
}

async function isStored(cli: Cli, forkd: Controller, name: string): Promise<boolean> {
  try {
    await forkd.getImage(name, { signal: cli.signal });
    return true;
  } catch (error) {
    if (codeOf(error) === "NOT_FOUND") return false;
    throw error;
  }
}

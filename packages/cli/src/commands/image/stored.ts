// Shared by build, pull and import: the size limit, and the output for the new image.

import { InvalidArgumentError } from "commander";
import { formatBytes, printJson, printPlain } from "../../terminal/output.ts";

import type { CreatedImageInfo, ImageInfo } from "forkd";
import type { Cli } from "../../cli.ts";

const ID_DIGITS = 12;
const UNITS: Record<string, number> = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };

/** 1500000, 512M, 20G */
export function parseBytes(text: string): number {
  const match = /^(\d+)([kmgt]?)$/i.exec(text);
  const bytes = Number(match?.[1]) * (UNITS[match?.[2]?.toLowerCase() ?? ""] ?? Number.NaN);
  if (!Number.isSafeInteger(bytes) || bytes <= 0)
    throw new InvalidArgumentError("It must be a number of bytes, such as 1500000, 512M or 20G.");
  return bytes;
}

export function printStored(cli: Cli, name: string, image: CreatedImageInfo): void {
  if (cli.json) printJson(image);
  else printPlain(`${image.reused ? "Unchanged" : "Stored"}: ${name} (${shortId(image)}, ${formatBytes(image.bytes)})`);
}

/** A prefix of the id that is long enough to be unique */
export function shortId({ id }: ImageInfo): string {
  return id.slice("sha256:".length).slice(0, ID_DIGITS);
}

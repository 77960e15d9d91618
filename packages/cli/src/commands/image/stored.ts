// What build, pull and import share: the limit they take and the image they print.

import { InvalidArgumentError } from "commander";
import { formatBytes, printJson, printLine } from "../../output.ts";
import { describeImage } from "./ls.ts";

import type { StoredImage } from "@forkd/daemon";

const UNITS: Record<string, number> = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };

/** 1500000, 512M, 20G */
export function parseBytes(text: string): number {
  const match = /^(\d+)([kmgt]?)$/i.exec(text);
  const bytes = Number(match?.[1]) * (UNITS[match?.[2]?.toLowerCase() ?? ""] ?? Number.NaN);
  if (!Number.isSafeInteger(bytes) || bytes <= 0)
    throw new InvalidArgumentError("It must be a number of bytes, such as 1500000, 512M or 20G.");
  return bytes;
}

export function printStored(image: StoredImage, opts: { name: string; json: boolean; reused?: boolean }): void {
  if (opts.json) {
    printJson({ ...describeImage(image), reused: opts.reused === true });
    return;
  }
  const size = formatBytes(image.manifest.rootfs.bytes);
  const id = image.id.slice("sha256:".length, "sha256:".length + 12);
  printLine(`${opts.reused ? "Unchanged" : "Stored"}: ${opts.name} (${id}, ${size})`);
}

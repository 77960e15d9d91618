// The key of a cluster: one line, or two during a rotation.

import { createSecretKey, type KeyObject } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { readSecretFile } from "./secret-file.ts";

const MIN_BYTES = 32;
const MAX_KEYS = 2;

/**
 * The first key signs; both are accepted. Throws BAD_CONFIG or WEAK_TOKEN. Key objects are made once: from bytes, each
 * signature takes six times as long
 */
export async function readClusterKeys(path: string): Promise<KeyObject[]> {
  const lines = (await readSecretFile(path, "cluster_key_file")).split("\n").map((line) => line.trim());
  const keys = lines.filter((line) => line !== "").map((line) => Buffer.from(line));
  if (keys.length === 0 || keys.length > MAX_KEYS)
    throw new ForkdError("BAD_CONFIG", `Cannot use cluster_key_file ${path}: it has ${keys.length} keys, and must have 1 or 2.`);
  if (keys.some(({ length }) => length < MIN_BYTES))
    throw new ForkdError("WEAK_TOKEN", `Cannot use the key in ${path}: it has less than ${MIN_BYTES} bytes.`, {
      hint: "Make one with 'openssl rand -hex 32'.",
    });
  return keys.map((key) => createSecretKey(key));
}

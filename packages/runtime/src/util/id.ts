// Identifiers: random, lower case, safe as file names and host names.

import { randomBytes } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

type Interpreter = "python" | "node" | "typescript" | "r" | "java" | "bash";

/** 80 random bits behind a prefix, such as `sb-` */
export function newId(prefix: "sb" | "sn" | "rt" | "br" | "ws" | "sl" | "dk" | "wt" | "zy" | Interpreter): string {
  let text = "";
  for (const byte of randomBytes(16)) text += ALPHABET[byte & 31];
  return `${prefix}-${text}`;
}

// Identifiers: random, lower case, safe as file names and host names.

import { randomBytes } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

type Interpreter = "python" | "node" | "typescript" | "r" | "java" | "bash";

const LENGTH = 16;
/** Length of a node's code: the first characters of the ids that it makes */
export const NODE_CODE_LENGTH = 4;

/**
 * 80 random bits behind a prefix, such as `sb-`
 * @param node code of the node that makes it, which replaces the first 20 bits
 */
export function newId(prefix: "sb" | "sn" | "rt" | "br" | "ws" | "sl" | "dk" | "wt" | "zy" | Interpreter, node = ""): string {
  return `${prefix}-${node}${randomText(LENGTH - node.length)}`;
}

export function newNodeCode(): string {
  return randomText(NODE_CODE_LENGTH);
}

function randomText(length: number): string {
  let text = "";
  for (const byte of randomBytes(length)) text += ALPHABET[byte & 31];
  return text;
}

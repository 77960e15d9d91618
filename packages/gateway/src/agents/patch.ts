// Patches of objects: JSON merge patch (RFC 7396) and JSON patch (RFC 6902).

import { isRecord } from "./objects.ts";
import { refusal } from "./refusal.ts";

const MERGE = "application/merge-patch+json";
const JSON_PATCH = "application/json-patch+json";
const MAX_OPERATIONS = 1000;

type Json = Record<string, unknown> | unknown[];

export function patched(object: object, contentType: string | undefined, patch: unknown): unknown {
  const type = (contentType ?? "").split(";")[0]?.trim();
  if (type === MERGE) return merge(structuredClone(object), patch);
  if (type === JSON_PATCH) return applied(structuredClone(object), patch);
  throw refusal(
    "UnsupportedMediaType",
    `A patch must be ${MERGE} or ${JSON_PATCH}: objects here are not stored, so none has owners of its fields.`,
  );
}

function merge(target: unknown, patch: unknown): unknown {
  if (!isRecord(patch)) return patch;
  const result: Record<string, unknown> = isRecord(target) ? target : {};
  for (const [key, value] of Object.entries(patch)) {
    if (key === "__proto__") continue;
    if (value === null) delete result[key];
    else result[key] = merge(result[key], value);
  }
  return result;
}

function applied(object: unknown, patch: unknown): unknown {
  if (!Array.isArray(patch) || patch.length > MAX_OPERATIONS)
    throw refusal("BadRequest", `A JSON patch is a list of at most ${MAX_OPERATIONS} operations.`);
  return patch.reduce<unknown>(operate, object);
}

function operate(document: unknown, operation: unknown): unknown {
  const { op, path, from, value } = isRecord(operation) ? operation : {};
  if (typeof path !== "string") throw unreadable(operation);
  const at = pointer(path);
  if (op === "test") {
    if (JSON.stringify(read(document, at)) !== JSON.stringify(value))
      throw refusal("Conflict", `The patch expects another value at ${path}.`);
    return document;
  }
  if (op === "add") return write(document, at, value, true);
  if (op === "replace") {
    read(document, at);
    return write(document, at, value, false);
  }
  if (op === "remove") return remove(document, at);
  if ((op !== "move" && op !== "copy") || typeof from !== "string") throw unreadable(operation);
  const taken = structuredClone(read(document, pointer(from)));
  return write(op === "move" ? remove(document, pointer(from)) : document, at, taken, true);
}

function pointer(text: string): string[] {
  if (text === "") return [];
  if (!text.startsWith("/")) throw refusal("BadRequest", `${JSON.stringify(text.slice(0, 100))} is no path of a patch.`);
  const keys = text.slice(1).split("/");
  if (keys.includes("__proto__")) throw refusal("BadRequest", "No field has this name.");
  return keys.map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function read(document: unknown, at: readonly string[]): unknown {
  return at.reduce<unknown>((value, key) => {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) throw missing(at);
    return (value as Record<string, unknown>)[key];
  }, document);
}

function write(document: unknown, at: readonly string[], value: unknown, inserts: boolean): unknown {
  const key = at.at(-1);
  if (key === undefined) return value;
  const parent = read(document, at.slice(0, -1));
  if (typeof parent !== "object" || parent === null) throw missing(at);
  if (Array.isArray(parent)) {
    const index = key === "-" ? parent.length : Number(key);
    if (!Number.isInteger(index) || index < 0 || index > parent.length) throw missing(at);
    parent.splice(index, inserts ? 0 : 1, value);
  } else (parent as Record<string, unknown>)[key] = value;
  return document;
}

function remove(document: unknown, at: readonly string[]): unknown {
  read(document, at);
  const parent = read(document, at.slice(0, -1)) as Json;
  const key = at.at(-1) ?? "";
  if (Array.isArray(parent)) parent.splice(Number(key), 1);
  else delete parent[key];
  return document;
}

function missing(at: readonly string[]): Error {
  return refusal("Invalid", `The patch does not fit: there is nothing at /${at.join("/")}.`);
}

function unreadable(operation: unknown): Error {
  return refusal("BadRequest", `This operation of a patch cannot be read: ${JSON.stringify(operation)?.slice(0, 100)}.`);
}

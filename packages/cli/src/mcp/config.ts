// Changes one entry in the configuration file of another program, and no other byte.

import { randomBytes } from "node:crypto";
import { copyFile, mkdir, open, readFile, realpath, rename, rm, stat } from "node:fs/promises";
import { constants } from "node:fs";
import { dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { codeOf, failure } from "../errors.ts";
import { parseJson, putMember } from "./json-edit.ts";

const SERVERS = "mcpServers";
const CONTEXT_LINES = 3;
const PRIVATE_MODE = 0o600;

export class ConfigEdit {
  /** The file to write: the target of a link */
  readonly file: string;
  readonly isNew: boolean;
  readonly diff: readonly string[];
  readonly #before: string;
  readonly #after: string;

  private constructor(file: string, before: string | undefined, after: string) {
    this.file = file;
    this.isNew = before === undefined;
    this.#before = before ?? "";
    this.#after = after;
    this.diff = diffOf(this.#before, after);
  }

  /** Reads the file; changes nothing yet */
  static async prepare(path: string, name: string, entry: object): Promise<ConfigEdit> {
    const file = await realpath(path).catch((error: unknown) => {
      if (codeOf(error) !== "ENOENT") throw error;
      return path;
    });
    const before = await textOf(file);
    return new ConfigEdit(file, before, withServer(file, before, name, entry));
  }

  get isChanged(): boolean {
    return this.#before !== this.#after;
  }

  /** Resolves with the path of the backup; null when there was no file */
  async write(): Promise<string | null> {
    await mkdir(dirname(this.file), { recursive: true });
    const now = await textOf(this.file);
    if ((now ?? "") !== this.#before)
      throw failure("BUSY", `Cannot change ${this.file}: another program has changed it meanwhile.`, "Run the command again.");
    const backup = this.isNew ? null : await this.#backup();
    const mode = this.isNew ? PRIVATE_MODE : (await stat(this.file)).mode & 0o777;
    const temporary = `${this.file}.${randomBytes(4).toString("hex")}.tmp`;
    try {
      const handle = await open(temporary, "wx", mode);
      try {
        await handle.chmod(mode);
        await handle.writeFile(this.#after);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(temporary, this.file);
    } finally {
      await rm(temporary, { force: true });
    }
    return backup;
  }

  /** Never overwrites an earlier backup */
  async #backup(): Promise<string> {
    for (let i = 1; ; i++) {
      const backup = `${this.file}.forkd-backup${i === 1 ? "" : `-${i}`}`;
      try {
        await copyFile(this.file, backup, constants.COPYFILE_EXCL);
        return backup;
      } catch (error) {
        if (codeOf(error) !== "EEXIST") throw error;
      }
    }
  }
}

function withServer(file: string, before: string | undefined, name: string, entry: object): string {
  if (before === undefined || before.trim() === "") return `${JSON.stringify({ [SERVERS]: { [name]: entry } }, undefined, 2)}\n`;
  const value = parse(file, before);
  const servers = value[SERVERS];
  if (servers !== undefined && !isObject(servers)) throw notUnderstood(file, `its ${SERVERS} is no object`);
  if (isDeepStrictEqual(servers?.[name], entry)) return before;
  const after = servers === undefined ? putMember(before, [], SERVERS, { [name]: entry }) : putMember(before, [SERVERS], name, entry);
  // The file belongs to another program: the result is checked before it is written.
  const expected = { ...value, [SERVERS]: { ...servers, [name]: entry } };
  if (!isDeepStrictEqual(parse(file, after), expected)) throw notUnderstood(file, "a name is there twice");
  return after;
}

function parse(file: string, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch (error) {
    throw notUnderstood(file, error instanceof Error ? error.message : String(error));
  }
  if (!isObject(value)) throw notUnderstood(file, "it is no object");
  return value;
}

function notUnderstood(file: string, why: string): Error {
  return failure(
    "BAD_CONFIG",
    `Cannot change ${file}: it is not JSON that forkd understands: ${why}.`,
    "Fix it, or add the entry by hand: 'forkd mcp install --print --file /tmp/new.json --client …' shows it.",
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

async function textOf(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
    return undefined;
  }
}

/** The changed lines, with some context */
function diffOf(before: string, after: string): string[] {
  const old = before === "" ? [] : before.replace(/\n$/, "").split("\n");
  const now = after.replace(/\n$/, "").split("\n");
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  if (head === old.length && head === now.length) return [];
  return [
    ...now.slice(Math.max(0, head - CONTEXT_LINES), head).map((line) => `  ${line}`),
    ...old.slice(head, old.length - tail).map((line) => `- ${line}`),
    ...now.slice(head, now.length - tail).map((line) => `+ ${line}`),
    ...now.slice(now.length - tail, now.length - tail + CONTEXT_LINES).map((line) => `  ${line}`),
  ];
}

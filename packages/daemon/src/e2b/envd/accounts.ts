// Users of a guest's /etc/passwd: default user of a request, and base folder of relative paths.

import { posix } from "node:path";
import { ForkdError } from "@forkd/runtime/errors";
import { DEFAULT_USER, USER_KEY } from "../lifecycle.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { Services } from "../../dispatch/services.ts";
import type { Caller } from "../../service/caller.ts";
import type { SandboxWork } from "../work.ts";

const ROOT: Account = { name: "root", uid: 0, gid: 0, home: "/root" };
/** Cache limit: sandboxes are short-lived, and an evicted entry is read again */
const MAX_KNOWN = 10_000;
/** The guest controls the file size, and the file is read for nearly every request */
const MAX_PASSWD_BYTES = 1024 * 1024;
/** Longer lines are ignored */
const MAX_LINE = 8192;

export type Account = { name: string; uid: number; gid: number; home: string };

export class Accounts {
  readonly #manager: { files: Pick<Services["manager"]["files"], "read"> };
  /** by sandbox and user name; only requested users, because a guest can define any number */
  readonly #known = new Map<string, Account>();

  constructor({ manager }: { manager: { files: Pick<Services["manager"]["files"], "read"> } }) {
    this.#manager = manager;
  }

  /** Throws UNAUTHORIZED for a user that does not exist in the guest, as E2B does */
  async find({ id, metadata }: Pick<SandboxInfo, "id" | "metadata">, name: string | undefined, caller: Caller): Promise<Account> {
    const wanted = name ?? metadata[USER_KEY] ?? DEFAULT_USER;
    const key = `${id} ${wanted}`;
    const known = this.#known.get(key);
    if (known) return known;
    // not cached: the user may have been added since the last read
    const accounts = await this.#read(id, caller);
    const isRoot = name === undefined || name === ROOT.name;
    const account = accounts.get(wanted) ?? (isRoot ? (accounts.get(ROOT.name) ?? ROOT) : undefined);
    if (!account) throw new ForkdError("UNAUTHORIZED", `invalid username: '${name}'`);
    if (account.name === wanted) this.#keep(key, account);
    return account;
  }

  #keep(key: string, account: Account): void {
    // copy: a substring would keep the whole file text in memory
    this.#known.set(key, JSON.parse(JSON.stringify(account)) as Account);
    if (this.#known.size > MAX_KNOWN) this.#known.delete(this.#known.keys().next().value ?? "");
  }

  async #read(id: string, caller: Caller): Promise<Map<string, Account>> {
    // one buffer: a guest can send the file byte by byte, and a list of chunks would use a hundred times its size
    const content = Buffer.allocUnsafe(MAX_PASSWD_BYTES);
    let length = 0;
    const path = "/etc/passwd";
    try {
      for await (const piece of await this.#manager.files.read(id, { path, length: MAX_PASSWD_BYTES + 1 }, caller)) {
        if (length + piece.length > MAX_PASSWD_BYTES)
          throw new ForkdError("FILE_FAILED", `Cannot read the users of the guest: ${path} has more than ${MAX_PASSWD_BYTES} bytes.`, {
            hint: "Make it shorter inside of the sandbox.",
          });
        content.set(piece, length);
        length += piece.length;
      }
    } catch (error) {
      // an image may lack /etc/passwd
      if (!(error instanceof ForkdError) || error.code !== "FILE_NOT_FOUND") throw error;
    }
    return parsePasswd(content.toString("utf8", 0, length));
  }
}

export function parsePasswd(text: string): Map<string, Account> {
  const accounts = text.split("\n").flatMap((line): [string, Account][] => {
    const [name = "", , uid = "", gid = "", , home = ""] = line.split(":");
    if (name === "" || line.length > MAX_LINE || !/^\d+$/.test(uid) || !/^\d+$/.test(gid)) return [];
    return [[name, { name, uid: Number(uid), gid: Number(gid), home: home === "" ? "/" : home }]];
  });
  return new Map(accounts);
}

/** User of a request: Basic authorization without a password in RPCs, the query in file requests */
export async function accountOf({ request, call, sandbox, services, caller }: SandboxWork): Promise<Account> {
  const [, encoded] = /^basic +(\S+)$/i.exec(request.headers.authorization ?? "") ?? [];
  const basic = encoded === undefined ? "" : (Buffer.from(encoded, "base64").toString().split(":", 1)[0] ?? "");
  const named = call.query.get("username") ?? basic;
  return services.accounts.find(sandbox, named === "" ? undefined : named, caller);
}

/** Resolves a relative path, or one that begins with `~` */
export function pathFor({ home }: Account, path: string): string {
  if (path.includes("\0")) throw new ForkdError("BAD_REQUEST", "Cannot use the path: no path holds a zero byte.");
  return posix.resolve(home, path.replace(/^~(?=\/|$)/, home));
}

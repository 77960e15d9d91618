// The users of a guest, as its /etc/passwd has them: who acts when nobody is named, and where relative paths begin.

import { posix } from "node:path";
import { ForkdError } from "../../errors.ts";
import { DEFAULT_USER, USER_KEY } from "../lifecycle.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { Services } from "../../http/services.ts";
import type { Caller } from "../../manager/caller.ts";
import type { SandboxWork } from "../work.ts";

const ROOT: Account = { name: "root", uid: 0, gid: 0, home: "/root" };
/** Sandboxes come and go; what is forgotten is read again */
const MAX_SANDBOXES = 1000;

export type Account = { name: string; uid: number; gid: number; home: string };

export class Accounts {
  readonly #manager: Services["manager"];
  readonly #bySandbox = new Map<string, Map<string, Account>>();

  constructor({ manager }: Pick<Services, "manager">) {
    this.#manager = manager;
  }

  /** Throws UNAUTHORIZED for a user that the guest does not have, as E2B does */
  async find({ id, metadata }: SandboxInfo, name: string | undefined, caller: Caller): Promise<Account> {
    const wanted = name ?? metadata[USER_KEY] ?? DEFAULT_USER;
    // one that is not known may have been added meanwhile
    const account = this.#bySandbox.get(id)?.get(wanted) ?? (await this.#read(id, caller)).get(wanted);
    if (account) return account;
    if (name === undefined || name === ROOT.name) return this.#bySandbox.get(id)?.get(ROOT.name) ?? ROOT;
    throw new ForkdError("UNAUTHORIZED", `Cannot do this as ${name}: invalid username: the sandbox has no such user.`);
  }

  async #read(id: string, caller: Caller): Promise<Map<string, Account>> {
    const pieces: Buffer[] = [];
    try {
      for await (const piece of await this.#manager.files.read(id, { path: "/etc/passwd" }, caller)) pieces.push(piece);
    } catch (error) {
      // an image may have no such file
      if (!(error instanceof ForkdError) || error.code !== "FILE_NOT_FOUND") throw error;
    }
    const accounts = parsePasswd(Buffer.concat(pieces).toString());
    this.#bySandbox.delete(id);
    this.#bySandbox.set(id, accounts);
    if (this.#bySandbox.size > MAX_SANDBOXES) this.#bySandbox.delete(this.#bySandbox.keys().next().value ?? "");
    return accounts;
  }
}

export function parsePasswd(text: string): Map<string, Account> {
  const accounts = text.split("\n").flatMap((line): [string, Account][] => {
    const [name = "", , uid = "", gid = "", , home = ""] = line.split(":");
    if (name === "" || !/^\d+$/.test(uid) || !/^\d+$/.test(gid)) return [];
    return [[name, { name, uid: Number(uid), gid: Number(gid), home: home === "" ? "/" : home }]];
  });
  return new Map(accounts);
}

/** Whom a request speaks for: calls say it as Basic authorization without a password, files in the query */
export async function accountOf({ request, call, sandbox, services, caller }: SandboxWork): Promise<Account> {
  const [, encoded] = /^basic +(\S+)$/i.exec(request.headers.authorization ?? "") ?? [];
  const basic = encoded === undefined ? "" : (Buffer.from(encoded, "base64").toString().split(":", 1)[0] ?? "");
  const named = call.query.get("username") ?? basic;
  return services.accounts.find(sandbox, named === "" ? undefined : named, caller);
}

/** Where a path leads that may be relative, or begin at the user's home */
export function pathFor({ home }: Account, path: string): string {
  if (path.includes("\0")) throw new ForkdError("BAD_REQUEST", "Cannot use the path: no path holds a zero byte.");
  return posix.resolve(home, path.replace(/^~(?=\/|$)/, home));
}

// Keys for packs: own ones to sign with, and public ones of others. A private key never leaves its file.

import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { mkdir, open, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { checkName } from "../util/name.ts";
import { syncFolder } from "../util/sync-folder.ts";
import { keyId, publicText, signerOf, type Signer } from "./signature.ts";

export type KeyInfo = { name: string; id: string; publicKey: string; kind: "own" | "trusted"; createdAt: Date };

/** Two kinds of files in one folder, so that a name is one key's */
const SUFFIX = { own: ".pem", trusted: ".pub" } as const;

export class KeyStore {
  readonly #dir: string;

  constructor(home: Home) {
    this.#dir = join(home.root, "keys");
  }

  /** Makes a key to sign with */
  async create(name: string): Promise<KeyInfo> {
    const { privateKey } = generateKeyPairSync("ed25519");
    await this.#write(name, "own", privateKey.export({ format: "pem", type: "pkcs8" }) as string);
    return this.get(name);
  }

  /** Makes somebody's public key known */
  async trust(name: string, publicKey: string): Promise<KeyInfo> {
    const id = keyId(publicKey);
    const same = (await this.list()).find((key) => key.id === id);
    if (same) throw new ForkdError("EXISTS", `Cannot trust this key as ${name}: it is known already, as ${same.name}.`);
    await this.#write(name, "trusted", `${publicKey}\n`);
    return this.get(name);
  }

  async list(): Promise<KeyInfo[]> {
    const files = (await this.#files()).map(({ name, kind }) => this.#read(name, kind));
    return (await Promise.all(files)).toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** By name, or by an unambiguous beginning of its id */
  async get(name: string): Promise<KeyInfo> {
    const all = await this.list();
    const named = all.find((key) => key.name === name);
    const matches = named ? [named] : /^[0-9a-f]{8,64}$/.test(name) ? all.filter(({ id }) => id.startsWith(name)) : [];
    const [only] = matches;
    if (!only || matches.length > 1)
      throw new ForkdError("NOT_FOUND", `There is no key ${JSON.stringify(name.slice(0, 80))}.`, {
        hint: "List them with 'forkd key ls'.",
      });
    return only;
  }

  async remove(name: string): Promise<void> {
    const key = await this.get(name);
    await rm(this.#path(key.name, key.kind));
  }

  /** Of an own key */
  async signer(name: string): Promise<Signer> {
    const key = await this.get(name);
    if (key.kind !== "own")
      throw new ForkdError("BAD_REQUEST", `Cannot sign with key ${key.name}: it is somebody else's public key.`, {
        hint: "'forkd key new NAME' makes one of your own.",
      });
    return signerOf(await this.#privateKey(key.name));
  }

  /** Ids of all known keys: what one signs oneself, one trusts */
  async known(): Promise<Set<string>> {
    return new Set((await this.list()).map(({ id }) => id));
  }

  async #privateKey(name: string): Promise<KeyObject> {
    return createPrivateKey(await readFile(this.#path(name, "own")));
  }

  async #read(name: string, kind: KeyInfo["kind"]): Promise<KeyInfo> {
    const path = this.#path(name, kind);
    const publicKey = kind === "own" ? publicText(createPublicKey(await this.#privateKey(name))) : (await readFile(path, "utf8")).trim();
    return { name, id: keyId(publicKey), publicKey, kind, createdAt: (await stat(path)).mtime };
  }

  async #write(name: string, kind: KeyInfo["kind"], text: string): Promise<void> {
    checkName("Key name", name);
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    if ((await this.#files()).some((file) => file.name === name))
      throw new ForkdError("EXISTS", `Cannot make key ${name}: there is one of that name.`);
    await using file = await open(this.#path(name, kind), "wx", 0o600);
    await file.writeFile(text);
    await file.sync();
    await syncFolder(this.#dir);
  }

  async #files(): Promise<{ name: string; kind: KeyInfo["kind"] }[]> {
    let files: string[];
    try {
      files = await readdir(this.#dir);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw error;
    }
    const kinds = ["own", "trusted"] as const;
    return kinds.flatMap((kind) =>
      files.filter((file) => file.endsWith(SUFFIX[kind])).map((file) => ({ name: file.slice(0, -SUFFIX[kind].length), kind })),
    );
  }

  #path(name: string, kind: KeyInfo["kind"]): string {
    return join(this.#dir, name + SUFFIX[kind]);
  }
}

// Keys for packs: own keys for signing, and public keys of others. A private key never leaves its file.

import { createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes, type KeyObject } from "node:crypto";
import { link, mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { checkName } from "../util/name.ts";
import { notFound } from "../util/not-found.ts";
import { syncPath } from "../util/sync-path.ts";
import { keyId, publicText, signerOf, type Signer } from "./signature.ts";

export type KeyInfo = { name: string; id: string; publicKey: string; kind: "own" | "trusted"; createdAt: Date };

/** Both kinds of files are in one folder, so that a name is unique */
const SUFFIX = { own: ".pem", trusted: ".pub" } as const;

export class KeyStore {
  readonly #dir: string;

  constructor(home: Home) {
    this.#dir = join(home.root, "keys");
  }

  /** Makes a signing key */
  async create(name: string): Promise<KeyInfo> {
    const { privateKey } = generateKeyPairSync("ed25519");
    await this.#write(name, "own", privateKey.export({ format: "pem", type: "pkcs8" }) as string);
    return this.get(name);
  }

  /** Stores the public key of another signer */
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

  /** By name, or by an unambiguous prefix of its id */
  async get(name: string): Promise<KeyInfo> {
    const all = await this.list();
    const named = all.find((key) => key.name === name);
    const matches = named ? [named] : /^[0-9a-f]{8,64}$/.test(name) ? all.filter(({ id }) => id.startsWith(name)) : [];
    const [only] = matches;
    if (only && matches.length === 1) return only;
    const known = all.map((key) => key.name);
    throw notFound("key", name, known);
  }

  async remove(name: string): Promise<void> {
    const key = await this.get(name);
    await rm(this.#path(key.name, key.kind));
    // without this a power cut brings back a key that is not trusted any more
    await syncPath(this.#dir);
  }

  /** For an own key */
  async signer(name: string): Promise<Signer> {
    const key = await this.get(name);
    if (key.kind !== "own")
      throw new ForkdError("BAD_REQUEST", `Cannot sign with key ${key.name}: it is the public key of another signer.`, {
        hint: "'forkd key new NAME' makes one of your own.",
      });
    return signerOf(await this.#privateKey(key.name));
  }

  /** Ids of all known keys; own keys are trusted */
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
    const isNew = (await mkdir(this.#dir, { recursive: true, mode: 0o700 })) !== undefined;
    if (isNew) await syncPath(dirname(this.#dir));
    const exists = new ForkdError("EXISTS", `Cannot make key ${name}: there is one of that name.`);
    if ((await this.#files()).some((file) => file.name === name)) throw exists;
    // Under its own name a half-written file would be taken for a key after a power cut, and no key could be listed.
    const temporary = join(this.#dir, `${randomBytes(8).toString("hex")}.tmp`);
    try {
      await writeFile(temporary, text, { mode: 0o600, flag: "wx", flush: true });
      await link(temporary, this.#path(name, kind));
    } catch (error) {
      throw (error as NodeJS.ErrnoException).code === "EEXIST" ? exists : error;
    } finally {
      await rm(temporary, { force: true });
    }
    await syncPath(this.#dir);
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

// Packs: snapshots made into files, and files into snapshots; and the keys that sign them.

import type { CreateKey, KeyInfo, PackInfo, PreparePack, Unpacked, UnpackQuery } from "../api/pack.ts";
import { PROTOCOL_VERSION } from "../guest/protocol.ts";
import { withStaging } from "../host/staging.ts";
import { openPack, packBytes, packSize } from "../pack/container.ts";
import type { PackHost } from "../pack/fit.ts";
import { KeyStore, type KeyInfo as StoredKey } from "../pack/keys.ts";
import { ARCHITECTURE, preparePack, type Pack } from "../pack/prepare.ts";
import { receivePack, type PackSource } from "../pack/receive.ts";
import { digestOf } from "../util/digest.ts";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";
import type { Lineage } from "./lineage.ts";
import { policyOf } from "./network-policy.ts";
import type { Snapshots } from "./snapshots.ts";

const MIB = 1024 * 1024;

export class Packs {
  readonly #core: Core;
  readonly #snapshots: Snapshots;
  readonly #lineage: Lineage;
  readonly #keys: KeyStore;

  constructor(core: Core, parts: { snapshots: Snapshots; lineage: Lineage }) {
    this.#core = core;
    this.#snapshots = parts.snapshots;
    this.#lineage = parts.lineage;
    this.#keys = new KeyStore(core.home);
  }

  /** A snapshot with all its digests known; close it when it is sent */
  async prepare(tag: string, { level, sign, without = [] }: PreparePack, caller: Pick<Caller, "signal" | "progress">): Promise<Pack> {
    const { runtime, settings } = this.#core;
    const { id } = (await this.#snapshots.usable(tag)).manifest;
    const signer = sign === undefined ? undefined : await this.#keys.signer(sign);
    const there = new Set(await Promise.all(without.map(async (other) => runtime.snapshots.idOf(other))));
    const { signal, progress } = caller;
    const cacheBytes = settings.packCacheMiB * MIB;
    return this.#lineage.pinned(id, async () =>
      preparePack(runtime, tag, { level, sign: signer, without: there, cacheBytes, signal, progress }),
    );
  }

  async info(tag: string, request: PreparePack, caller: Caller): Promise<PackInfo> {
    await using pack = await this.prepare(tag, request, caller);
    return packInfo(tag, pack);
  }

  /** The bytes of its file, and how many */
  async read(tag: string, request: PreparePack, caller: Caller): Promise<{ bytes: AsyncIterable<Buffer>; size: number }> {
    const pack = await this.prepare(tag, request, caller);
    return { bytes: closing(packBytes(pack, caller.signal), pack), size: packSize(pack) };
  }

  async unpack(bytes: AsyncIterable<Uint8Array>, query: UnpackQuery, caller: Caller): Promise<Unpacked> {
    return withStaging(this.#core.home, async (dir) => {
      const source = await openPack(bytes, dir);
      try {
        return await this.receive(source, query, caller);
      } finally {
        await source.close();
      }
    });
  }

  /** Takes a pack in, wherever it comes from */
  async receive(source: PackSource, { tag, force }: UnpackQuery, caller: Caller): Promise<Unpacked> {
    const { runtime, settings } = this.#core;
    const received = await receivePack(runtime, source, {
      tag,
      force,
      trust: { policy: settings.packTrust, keys: await this.#keys.known() },
      host: this.#host(),
      // its forks may connect to what the caller could allow
      check: ({ network: { mode, allow } }) => void policyOf({ mode, allow }, caller, runtime.network),
      signal: caller.signal,
      progress: caller.progress,
    });
    const warnings = received.isSigned && received.signedBy === null ? ["It is signed by a key that is not known."] : [];
    if (!received.isSigned) warnings.push("It is not signed: nothing says who made it.");
    const { replaced, signedBy, snapshots: added } = received;
    return this.#snapshots.received(received, caller, (snapshot) => ({ snapshot, added, replaced, signed_by: signedBy, warnings }));
  }

  async keys(): Promise<KeyInfo[]> {
    return (await this.#keys.list()).map(keyInfo);
  }

  async key(name: string): Promise<KeyInfo> {
    return keyInfo(await this.#keys.get(name));
  }

  async createKey({ name, public_key: publicKey }: CreateKey): Promise<KeyInfo> {
    return keyInfo(await (publicKey === undefined ? this.#keys.create(name) : this.#keys.trust(name, publicKey)));
  }

  async removeKey(name: string): Promise<void> {
    await this.#keys.remove(name);
  }

  #host(): PackHost {
    const { runtime } = this.#core;
    return {
      architecture: ARCHITECTURE,
      qemuVersion: runtime.qemuVersion,
      accelerator: runtime.accelerator.accelerator,
      protocol: PROTOCOL_VERSION,
      capabilities: async () => runtime.capabilities(),
    };
  }
}

function packInfo(tag: string, pack: Pack): PackInfo {
  const { manifest, manifestBytes, signatures, blobs } = pack;
  const sent = new Set(blobs.map(({ digest }) => digest));
  return {
    tag,
    id: manifest.head,
    manifest_digest: digestOf(manifestBytes),
    level: manifest.compression.level,
    signed_by: signatures.map(({ keyId }) => keyId),
    snapshots: manifest.links.map(({ id }) => id),
    bytes: packSize(pack),
    content_bytes: manifest.blobs.reduce((sum, blob) => sum + (sent.has(blob.digest) ? blob.contentSize : 0), 0),
    blobs: manifest.blobs.map(({ kind, digest, size, contentSize }) => ({
      kind,
      digest,
      bytes: size,
      content_bytes: contentSize,
      included: sent.has(digest),
    })),
  };
}

function keyInfo({ name, id, kind, publicKey, createdAt }: StoredKey): KeyInfo {
  return { name, id, kind, public_key: publicKey, created_at_unix: Math.floor(createdAt.getTime() / 1000) };
}

/** Lets go of the files when they are sent, or when nobody wants them any more: no generator, which does nothing if nobody begins to read it */
function closing(bytes: AsyncGenerator<Buffer>, pack: Pack): AsyncIterable<Buffer> {
  const end = async (): Promise<IteratorReturnResult<undefined>> => {
    await pack.close();
    return { done: true, value: undefined };
  };
  const next = async (): Promise<IteratorResult<Buffer, undefined>> => {
    try {
      const step = await bytes.next();
      return step.done === true ? await end() : step;
    } catch (error) {
      await pack.close();
      throw error;
    }
  };
  const stop = async (): Promise<IteratorReturnResult<undefined>> => {
    await bytes.return(undefined);
    return end();
  };
  return { [Symbol.asyncIterator]: () => ({ next, return: stop }) };
}

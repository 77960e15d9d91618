// Packs: export and import of snapshots as files, and the signing keys.

import { isDeepStrictEqual } from "node:util";
import type { CreateKey, KeyInfo, PackInfo, PreparePack, Unpacked, UnpackQuery } from "../api/pack.ts";
import { PROTOCOL_VERSION } from "@forkd/runtime/agent/wire/protocol";
import type { IsolationPolicy } from "@forkd/runtime/host/accelerators";
import { withStaging } from "@forkd/runtime/host/staging";
import { NO_NETWORK, type NetworkPolicy } from "@forkd/runtime/egress/policy";
import { openPack, packBytes, packSize } from "@forkd/runtime/pack/container";
import type { PackHost } from "@forkd/runtime/pack/fit";
import { KeyStore, type KeyInfo as StoredKey } from "@forkd/runtime/pack/keys";
import { ARCHITECTURE, preparePack, type Pack } from "@forkd/runtime/pack/prepare";
import { receivePack, type PackSource, type Received } from "@forkd/runtime/pack/receive";
import { SNAPSHOT_ID } from "@forkd/runtime/snapshot/tags";
import { ForkdError } from "@forkd/runtime/errors";
import { digestOf } from "@forkd/runtime/util/digest";
import { newId } from "@forkd/runtime/util/id";
import { projectOf, storedName } from "../store/project-names.ts";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";
import { droppedWarning, withoutInward } from "./network-policy.ts";
import type { Snapshots } from "./snapshots.ts";

const MIB = 1024 * 1024;

/** Warnings about forks of an emulated snapshot on a KVM host, by the setting `isolation` */
const EMULATED: Record<IsolationPolicy, string> = {
  auto: "isolation = auto refuses them here unless a fork asks for isolation = any",
  kvm: "isolation = kvm refuses them",
  any: "isolation = any allows them, and emulation is not a security boundary",
};

export class Packs {
  readonly #core: Core;
  readonly #snapshots: Snapshots;
  readonly #keys: KeyStore;

  constructor(core: Core, parts: { snapshots: Snapshots }) {
    this.#core = core;
    this.#snapshots = parts.snapshots;
    this.#keys = new KeyStore(core.home);
  }

  /** Computes all digests of a snapshot; the caller must close the pack after sending */
  async prepare(tag: string, { level, sign, without = [] }: PreparePack, caller: Caller): Promise<Pack> {
    const { runtime, settings } = this.#core;
    const { id } = (await this.#snapshots.usable(tag, caller)).manifest;
    if (sign !== undefined && !caller.isOperator)
      throw new ForkdError("FORBIDDEN", "Cannot sign the pack: the keys are the daemon's, and need the scope operator.");
    const signer = sign === undefined ? undefined : await this.#keys.signer(sign);
    const there = new Set(await Promise.all(without.map(async (other) => runtime.snapshots.idOf(this.#stored(other, caller)))));
    const { signal, progress } = caller;
    const cacheBytes = settings.packCacheMiB * MIB;
    return runtime.locks.whileNeeded(id, async () =>
      preparePack(runtime, this.#stored(tag, caller), { level, sign: signer, without: there, cacheBytes, signal, progress }),
    );
  }

  async info(tag: string, request: PreparePack, caller: Caller): Promise<PackInfo> {
    await using pack = await this.prepare(tag, request, caller);
    return packInfo(tag, pack);
  }

  /** Content and size of the pack file */
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

  /** Imports a pack from any source */
  async receive(source: PackSource, { tag, force, keep_network: keep }: UnpackQuery, caller: Caller): Promise<Unpacked> {
    const { runtime, settings } = this.#core;
    const dropped = new Set<string>();
    const { project } = caller;
    const networkOf = (offered: NetworkPolicy, signedBy: string | null): NetworkPolicy => {
      const kept = keep || signedBy !== null ? withoutInward(offered, runtime.network) : NO_NETWORK;
      const what = droppedWarning(offered, kept);
      if (what !== undefined) dropped.add(what);
      return kept;
    };
    const received = await receivePack(runtime, source, {
      tag,
      force,
      tagOf: (name) => storedName(name, project),
      isOwn: (stored) => projectOf(stored) === project,
      trust: { policy: settings.packTrust, keys: await this.#keys.known() },
      host: this.#host(),
      networkOf,
      signal: caller.signal,
      progress: caller.progress,
    });
    const warnings = received.isSigned && received.signedBy === null ? ["It is signed by a key that is not known."] : [];
    if (!received.isSigned) warnings.push("It is not signed: nothing says who made it.");
    if (runtime.accelerator.accelerator === "kvm" && received.head.manifest.shape.accelerator === "tcg")
      warnings.push(`It was made without KVM, so its forks would be emulated: ${EMULATED[settings.isolation]}.`);
    const { replaced, signedBy, snapshots: added } = received;
    if (received.isForeign) return this.#copied(received, { force, warnings, networkOf }, caller);
    warnings.push(...dropped);
    if (keep && !added.includes(received.head.manifest.id) && !isDeepStrictEqual(received.offered, received.head.manifest.network))
      warnings.push("It was here already, with another network policy, which it keeps: remove it first to take in that of the pack.");
    return this.#snapshots.received(received, caller, (snapshot) => ({ snapshot, added, replaced, signed_by: signedBy, warnings }));
  }

  /** The same snapshot belongs to another project: its name and its labels stay there, so this project gets a copy */
  async #copied(
    { head, tag, offered, signedBy }: Received,
    opts: {
      force?: boolean | undefined;
      warnings: string[];
      networkOf: (offered: NetworkPolicy, signedBy: string | null) => NetworkPolicy;
    },
    caller: Caller,
  ): Promise<Unpacked> {
    const quiet = { ...caller, remember: undefined };
    const network = opts.networkOf(offered, signedBy);
    const copy = await this.#snapshots.copy(head, opts.force ? newId("br") : tag, quiet, network);
    const snapshot = opts.force ? await this.#snapshots.publish(copy.tag, { tag, metadata: {} }, caller) : copy;
    const unpacked = { snapshot, added: [snapshot.id], replaced: null, signed_by: signedBy, warnings: opts.warnings };
    caller.remember?.(201, unpacked);
    return unpacked;
  }

  #stored(reference: string, { project }: Caller): string {
    return SNAPSHOT_ID.test(reference) ? reference : storedName(reference, project);
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
      protocol: PROTOCOL_VERSION,
      engine: runtime.engine,
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
    isolation: manifest.requires.accelerator === "kvm" ? "kvm" : "emulated",
    cpu: manifest.requires.cpu,
    cpu_vendor: manifest.requires.vendor ?? null,
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

/** Closes the pack when it was sent or abandoned. Not a generator: one that was never started skips its `finally` */
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

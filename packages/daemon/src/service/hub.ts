// Hubs: push and pull of snapshots.

import type { HubListing, HubQuery, PullSnapshot, PushedSnapshot, PushSnapshot } from "../api/hub.ts";
import type { Unpacked } from "../api/pack.ts";
import { withStaging } from "@forkd/runtime/host/staging";
import { findInIndex, listingOf, readIndex } from "@forkd/runtime/hub/index-file";
import { digestOf, hexOf } from "@forkd/runtime/util/digest";
import { hostOf, parsePlace } from "@forkd/runtime/hub/place";
import { openRemotePack } from "@forkd/runtime/hub/pull";
import type { Vouched } from "@forkd/runtime/hub/pull";
import { PushMemory } from "@forkd/runtime/hub/push-memory";
import { openPush } from "@forkd/runtime/hub/push";
import { PackCache } from "@forkd/runtime/pack/cache";
import type { Progress } from "@forkd/runtime/util/progress";
import { storedName } from "../store/project-names.ts";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";
import type { Packs } from "./packs.ts";

const MIB = 1024 * 1024;

export class Hub {
  readonly #core: Core;
  readonly #packs: Packs;
  readonly #memory = new PushMemory();

  constructor(core: Core, packs: Packs) {
    this.#core = core;
    this.#packs = packs;
  }

  async push(tag: string, request: PushSnapshot, caller: Caller): Promise<PushedSnapshot> {
    const to = openPush(request.to, { ...remoteOf(request, caller), memory: this.#memory, progress: caller.progress });
    await using pack = await this.#packs.prepare(tag, { level: request.level, sign: request.sign }, caller);
    const { digest, sha256, bytes, sentBytes } = await to.send(pack);
    const pushed = {
      to: to.shown,
      snapshot: pack.manifest.head,
      digest,
      sha256,
      manifest_sha256: hexOf(digestOf(pack.manifestBytes)),
      bytes,
      sent_bytes: sentBytes,
    };
    this.#core.db.transaction(() => {
      const { project, principal } = caller;
      const snapshot = storedName(tag, project);
      this.#core.events.append({ type: "snapshot.pushed", project, snapshot, principal, metadata: { to: to.shown } });
      caller.remember?.(201, pushed);
    });
    return pushed;
  }

  async pull(request: PullSnapshot, caller: Caller): Promise<Unpacked> {
    const from = await this.#find(request, caller);
    caller.progress?.({ step: `Asking for ${from.place.shown}` });
    const { home, settings } = this.#core;
    const progress = caller.progress && oneStep(caller.progress);
    const remote = remoteOf(isLoginFor(from.place, request) ? request : { ...request, username: undefined, password: undefined }, caller);
    const unpacked = await withStaging(home, async (staging) => {
      const source = await openRemotePack(home, from, { ...remote, staging, progress });
      try {
        const { tag, force = false, keep_network = false } = request;
        return await this.#packs.receive(source, { tag, force, keep_network }, { ...caller, progress });
      } finally {
        await source.close();
      }
    });
    await new PackCache(home).trim(settings.packCacheMiB * MIB);
    return unpacked;
  }

  async list({ hub, insecure_http: insecureHttp }: HubQuery, caller: Caller): Promise<HubListing> {
    return listingOf(await readIndex(this.#hubOf(hub), { insecureHttp, signal: caller.signal }));
  }

  async #find({ from, hub, insecure_http: insecureHttp }: PullSnapshot, { signal }: Caller): Promise<Vouched> {
    const place = parsePlace(from);
    if (place.kind === "alias") return findInIndex(await readIndex(this.#hubOf(hub), { insecureHttp, signal }), place);
    return { place, sha256: undefined, manifestSha256: undefined, key: undefined };
  }

  #hubOf(named: string | undefined): string | undefined {
    return named ?? this.#core.settings.hubUrl ?? undefined;
  }
}

/** Whether the login may be sent to this host: a hub index must not choose the recipient of the caller's login */
function isLoginFor(place: Vouched["place"], { from, login_host: host }: PullSnapshot): boolean {
  return host === undefined ? parsePlace(from).kind !== "alias" : host === hostOf(place);
}

/** Reports downloads only until all parts have arrived: unpacking runs in parallel, and the steps would alternate */
function oneStep(progress: Progress): Progress {
  let left = 0;
  return (event) => {
    if (event.step === "Downloading") left = (event.total ?? 0) - (event.done ?? 0);
    else if (left > 0) return;
    progress(event);
  };
}

function remoteOf(request: PushSnapshot | PullSnapshot, { signal }: Caller) {
  const { username, password, insecure_http: insecureHttp } = request;
  return { username, password, insecureHttp, signal };
}

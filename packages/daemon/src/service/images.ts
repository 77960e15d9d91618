// Images: build, pull, import, list, remove.

import type { CreatedImage, CreateImage, ImageInfo } from "../api/image.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { buildImage } from "@forkd/runtime/image/build";
import { importImage, type ImportOpts } from "@forkd/runtime/image/import";
import { pullImage } from "@forkd/runtime/image/oci-registry";
import { imageNameOf } from "@forkd/runtime/oci/reference";
import type { StoredImage } from "@forkd/runtime/image/store";
import { isLocal, type Caller } from "./caller.ts";
import type { Core } from "./core.ts";

type Made = { image: StoredImage; reused: boolean };

export class Images {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  async list(): Promise<ImageInfo[]> {
    const { runtime, log } = this.#core;
    const onInvalid = (error: ForkdError): void => log.warn({ err: error }, "an image cannot be read");
    return (await runtime.images.list({ onInvalid })).map(imageInfo);
  }

  async get(name: string): Promise<ImageInfo> {
    return imageInfo(await this.#core.runtime.images.get(name));
  }

  async create(request: CreateImage, caller: Caller): Promise<CreatedImage> {
    refuseOverNetwork(request, caller);
    const name = "reference" in request ? (request.name ?? imageNameOf(request.reference)) : request.name;
    return this.#created(name, await this.#make(name, request, caller), caller);
  }

  #created(name: string, { image, reused }: Made, caller: Caller): CreatedImage {
    const created = { ...imageInfo(image), reused };
    this.#core.db.transaction(() => {
      this.#core.events.append({ type: "image.created", principal: caller.principal, metadata: { image: name } });
      caller.remember?.(201, created);
    });
    return created;
  }

  /** Imports an archive from the host's staging folder that belongs to the caller, such as an upload */
  async importFile(name: string, file: string, caller: Caller): Promise<ImageInfo> {
    return this.#created(name, { image: await this.#import(name, file, caller), reused: false }, caller);
  }

  async remove(name: string, caller: Caller): Promise<void> {
    const { runtime, events } = this.#core;
    // refused even if the image has other names: a boot in progress looks it up by this one
    if (this.#beingBooted().includes(name)) {
      throw new ForkdError("IN_USE", `Cannot remove image ${name}: a snapshot is being made from it.`, {
        hint: "Wait for the snapshot, and remove it first.",
      });
    }
    await runtime.images.remove(name, { inUse: async (id) => this.#isNeeded(id) });
    events.append({ type: "image.deleted", principal: caller.principal, metadata: { image: name } });
  }

  async #make(name: string, request: CreateImage, caller: Caller): Promise<Made> {
    const { home } = this.#core;
    const common = this.#options(name, request.max_bytes, caller);
    if ("packages" in request) {
      const { packages, copy, run, suite, mirror, force } = request;
      return buildImage(home, { ...common, packages, copy: copy ?? [], run: run ?? [], suite, mirror, force });
    }
    if ("file" in request) return { image: await this.#import(name, request.file, caller, request.max_bytes), reused: false };
    const { reference, username, password, insecure_http: insecureHttp } = request;
    return { image: await pullImage(home, reference, { ...common, insecureHttp, username, password }), reused: false };
  }

  async #import(name: string, file: string, caller: Caller, maxBytes?: number): Promise<StoredImage> {
    return importImage(this.#core.home, file, this.#options(name, maxBytes, caller));
  }

  #options(name: string, maxBytes: number | undefined, { progress, signal }: Caller): ImportOpts {
    return { name, confinement: this.#core.settings.confinement, maxBytes, progress, signal };
  }

  /** Checks boots in progress first: a snapshot is on disk before its row leaves the status `writing` */
  async #isNeeded(id: string): Promise<boolean> {
    const { runtime } = this.#core;
    for (const name of this.#beingBooted()) if ((await this.#idOf(name)) === id) return true;
    return (await runtime.snapshots.everything()).some(({ manifest }) => manifest.imageId === id);
  }

  /** Images of snapshots that are being made, by name or id as requested */
  #beingBooted(): string[] {
    return this.#core.tables.snapshots.where("status", "writing").flatMap(({ image }) => image ?? []);
  }

  async #idOf(name: string): Promise<string | undefined> {
    try {
      return (await this.#core.runtime.images.get(name)).id;
    } catch (error) {
      // missing or damaged: no snapshot can be made from it
      if (error instanceof ForkdError) return undefined;
      throw error;
    }
  }
}

function imageInfo({ id, names, manifest }: StoredImage): ImageInfo {
  const { created_at, architecture, rootfs, source, config } = manifest;
  return { id, names, created_at, architecture, bytes: rootfs.bytes, source, config };
}

/** Over TCP, refuses access to the daemon's files and commands outside a VM: a token does not grant either */
function refuseOverNetwork(request: CreateImage, caller: Caller): void {
  if (isLocal(caller)) return;
  const field = hostFilesIn(request);
  const what = field === undefined ? undefined : `${field}: it names files of the daemon's machine`;
  const refused = what ?? ("packages" in request && request.run?.length ? "run: it runs commands on the daemon's machine" : undefined);
  if (refused === undefined) return;
  throw new ForkdError("FORBIDDEN", `Cannot use ${refused}, and the request came over the network.`, {
    hint: "Run it on that machine as the daemon's user, or put the image into a registry and pull it.",
  });
}

/** Name of the request field that refers to files of the daemon's machine */
function hostFilesIn(request: CreateImage): string | undefined {
  if ("file" in request) return "file";
  if (!("packages" in request)) return undefined;
  if (request.copy !== undefined && request.copy.length > 0) return "copy";
  return request.mirror === undefined || /^https?:/.test(request.mirror) ? undefined : "mirror";
}

// Images: built, pulled, imported, listed, removed.

import type { CreatedImage, CreateImage, ImageInfo } from "../api/image.ts";
import { ForkdError } from "../errors.ts";
import { buildImage } from "../image/build.ts";
import { importImage } from "../image/import.ts";
import { pullImage } from "../image/oci-registry.ts";
import { imageNameOf } from "../image/reference.ts";
import type { StoredImage } from "../image/store.ts";
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
    refuseForeignFiles(request, caller);
    const name = "reference" in request ? (request.name ?? imageNameOf(request.reference)) : request.name;
    const { image, reused } = await this.#make(name, request, caller);
    const created = { ...imageInfo(image), reused };
    this.#core.db.transaction(() => {
      this.#core.events.append({ type: "image.created", principal: caller.principal, metadata: { image: name } });
      caller.remember?.(201, created);
    });
    return created;
  }

  async remove(name: string, caller: Caller): Promise<void> {
    const { runtime, events } = this.#core;
    // also when the image has other names: what is being made is known by the name it was asked for with
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
    const common = { name, maxBytes: request.max_bytes, progress: caller.progress, signal: caller.signal };
    if ("packages" in request) {
      const { packages, copy, run, suite, mirror, force } = request;
      return buildImage(home, { ...common, packages, copy: copy ?? [], run: run ?? [], suite, mirror, force });
    }
    if ("file" in request) return { image: await importImage(home, request.file, common), reused: false };
    const { reference, username, password, insecure_http: insecureHttp } = request;
    return { image: await pullImage(home, reference, { ...common, insecureHttp, username, password }), reused: false };
  }

  /** Unfinished ones first: a snapshot is on disk before it is no longer unfinished */
  async #isNeeded(id: string): Promise<boolean> {
    const { runtime } = this.#core;
    for (const name of this.#beingBooted()) if ((await this.#idOf(name)) === id) return true;
    return (await runtime.snapshots.everything()).some(({ manifest }) => manifest.imageId === id);
  }

  /** Names or ids of images, as they were asked for, from which snapshots are being made */
  #beingBooted(): string[] {
    return this.#core.tables.snapshots.where("status", "writing").flatMap(({ image }) => image ?? []);
  }

  async #idOf(name: string): Promise<string | undefined> {
    try {
      return (await this.#core.runtime.images.get(name)).id;
    } catch (error) {
      // gone or damaged: nothing can be made from it
      if (error instanceof ForkdError) return undefined;
      throw error;
    }
  }
}

function imageInfo({ id, names, manifest }: StoredImage): ImageInfo {
  const { created_at, architecture, rootfs, source, config } = manifest;
  return { id, names, created_at, architecture, bytes: rootfs.bytes, source, config };
}

/** A token is no right to read whatever the daemon's user can read */
function refuseForeignFiles(request: CreateImage, caller: Caller): void {
  const field = hostFilesIn(request);
  if (field === undefined || isLocal(caller)) return;
  throw new ForkdError("FORBIDDEN", `Cannot use ${field}: it names files of the daemon's machine, and the request came over the network.`, {
    hint: "Run it on that machine as the daemon's user, or put the image into a registry and pull it.",
  });
}

/** The field that names files of the daemon's machine */
function hostFilesIn(request: CreateImage): string | undefined {
  if ("file" in request) return "file";
  if (!("packages" in request)) return undefined;
  if (request.copy !== undefined && request.copy.length > 0) return "copy";
  return request.mirror === undefined || /^https?:/.test(request.mirror) ? undefined : "mirror";
}

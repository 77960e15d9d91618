// Images: built, pulled, listed, removed.

import type { CreateImage, ImageInfo } from "../api/image.ts";
import { buildImage } from "../image/build.ts";
import { pullImage } from "../image/oci-registry.ts";
import { imageNameOf } from "../image/reference.ts";
import type { StoredImage } from "../image/store.ts";
import type { Caller } from "./caller.ts";
import type { Core } from "./core.ts";

export class Images {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  async list(): Promise<ImageInfo[]> {
    return (await this.#core.runtime.images.list()).map(imageInfo);
  }

  async get(name: string): Promise<ImageInfo> {
    return imageInfo(await this.#core.runtime.images.get(name));
  }

  async create(request: CreateImage, caller: Caller): Promise<ImageInfo> {
    const info = imageInfo(await this.#make(request, caller));
    this.#core.db.transaction(() => {
      this.#core.events.append({ type: "image.created", principal: caller.principal, metadata: { image: info.names[0] ?? info.id } });
      caller.remember?.(201, info);
    });
    return info;
  }

  async remove(name: string, caller: Caller): Promise<void> {
    const { runtime, events } = this.#core;
    const needed = new Set((await runtime.snapshots.everything()).map(({ manifest }) => manifest.imageId));
    await runtime.images.remove(name, { inUse: (id) => needed.has(id) });
    events.append({ type: "image.deleted", principal: caller.principal, metadata: { image: name } });
  }

  async #make(request: CreateImage, caller: Caller): Promise<StoredImage> {
    const { home } = this.#core;
    const { progress, signal } = caller;
    if ("packages" in request) {
      const { name, packages, run = [], force = false } = request;
      return (await buildImage(home, { name, packages, run, force, progress, signal })).image;
    }
    const { reference, username, password } = request;
    const name = request.name ?? imageNameOf(reference);
    return pullImage(home, reference, { name, insecureHttp: request.insecure_http ?? false, username, password, progress, signal });
  }
}

function imageInfo({ id, names, manifest }: StoredImage): ImageInfo {
  const { created_at, architecture, rootfs, source, config } = manifest;
  return { id, names, created_at, architecture, bytes: rootfs.bytes, source, config };
}

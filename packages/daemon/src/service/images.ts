// Images: build, pull, import, list, remove.

import type { CreatedImage, CreateImage, ImageInfo } from "../api/image.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { buildImage } from "@forkd/runtime/image/build";
import { importImage, type ImportOpts } from "@forkd/runtime/image/import";
import { pullImage } from "@forkd/runtime/image/oci-registry";
import { imageNameOf } from "@forkd/runtime/oci/reference";
import type { StoredImage } from "@forkd/runtime/image/store";
import { EVERY_PROJECT, isOf, projectOf, shownName, storedName } from "../store/project-names.ts";
import { notFound } from "@forkd/runtime/util/not-found";
import { isLocal, type Caller, type Viewer } from "./caller.ts";
import type { Core } from "./core.ts";

type Made = { image: StoredImage; reused: boolean };

export class Images {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  async list(viewer: Viewer): Promise<ImageInfo[]> {
    const { runtime, log } = this.#core;
    const onInvalid = (error: ForkdError): void => log.warn({ err: error }, "an image cannot be read");
    return (await this.#own(await runtime.images.list({ onInvalid }), viewer)).map((image) => imageInfo(image, viewer));
  }

  async get(name: string, viewer: Viewer): Promise<ImageInfo> {
    return imageInfo(await this.#find(name, viewer), viewer);
  }

  /** The stored name of an image of the project, or its id if that was given. Throws NOT_FOUND */
  async storedNameOf(name: string, viewer: Viewer): Promise<string> {
    const { id, names } = await this.#find(name, viewer);
    const stored = storedName(name, viewer.project);
    return names.includes(stored) ? stored : id;
  }

  /** By name, id or prefix of an id. One of another project does not exist for the viewer: the error is the same */
  async #find(name: string, viewer: Viewer): Promise<StoredImage> {
    const { images } = this.#core.runtime;
    const own = await this.#own(await images.list(), viewer);
    const stored = storedName(name, viewer.project);
    const named = own.find(({ names }) => names.includes(stored));
    if (named) return named;
    // a damaged image, or a wrong name, is an error of its own
    const found = isId(name) || projectOf(stored) === viewer.project ? await this.#read(isId(name) ? name : stored) : undefined;
    if (found && own.some(({ id }) => id === found.id)) return found;
    const known = own.flatMap(({ names }) => names.filter((each) => isOf(projectOf(each), viewer.project)));
    throw notFound(
      "image",
      name,
      known.map((each) => shownName(each, projectOf(each))),
    );
  }

  async #read(name: string): Promise<StoredImage | undefined> {
    try {
      return await this.#core.runtime.images.get(name);
    } catch (error) {
      if (error instanceof ForkdError && error.code === "NOT_FOUND") return undefined;
      throw error;
    }
  }

  /** Images that have a name in the project, or that a snapshot of it was made from */
  async #own(all: readonly StoredImage[], { project }: Viewer): Promise<StoredImage[]> {
    if (project === EVERY_PROJECT) return [...all];
    const { runtime, tables } = this.#core;
    const rows = new Map(tables.snapshots.all().map((row) => [row.id, row.project]));
    const snapshots = await runtime.snapshots.everything();
    const used = new Set(
      snapshots
        .filter(({ manifest }) => (rows.get(manifest.id) ?? projectOf(manifest.tag)) === project)
        .map(({ manifest }) => manifest.imageId),
    );
    return all.filter(({ id, names }) => used.has(id) || names.some((name) => projectOf(name) === project));
  }

  async create(request: CreateImage, caller: Caller): Promise<CreatedImage> {
    refuseOverNetwork(request, caller);
    const name = storedName("reference" in request ? (request.name ?? imageNameOf(request.reference)) : request.name, caller.project);
    return this.#created(name, await this.#make(name, request, caller), caller);
  }

  #created(name: string, { image, reused }: Made, caller: Caller): CreatedImage {
    const created = { ...imageInfo(image, caller), reused };
    const { project, principal } = caller;
    this.#core.db.transaction(() => {
      this.#core.events.append({ type: "image.created", project, principal, metadata: { image: shownName(name, project) } });
      caller.remember?.(201, created);
    });
    return created;
  }

  /** Imports an archive from the host's staging folder that belongs to the caller, such as an upload */
  async importFile(given: string, file: string, caller: Caller): Promise<ImageInfo> {
    const name = storedName(given, caller.project);
    return this.#created(name, { image: await this.#import(name, file, caller), reused: false }, caller);
  }

  async remove(name: string, caller: Caller): Promise<void> {
    const { runtime, events } = this.#core;
    const { project, principal } = caller;
    const found = await this.#find(name, caller);
    const stored = storedName(name, project);
    // refused even if the image has other names: a boot in progress looks it up by this one
    if (this.#beingBooted().includes(stored)) {
      throw new ForkdError("IN_USE", `Cannot remove image ${name}: a snapshot is being made from it.`, {
        hint: "Wait for the snapshot, and remove it first.",
      });
    }
    const inUse = async (id: string): Promise<boolean> => this.#isNeeded(id);
    // an id stands for all names that the project gave it; other projects keep theirs
    const own = found.names.filter((each) => projectOf(each) === project);
    const names = found.names.includes(stored) ? [stored] : own.length === found.names.length ? [found.id] : own;
    if (names.length === 0)
      throw new ForkdError("IN_USE", `Cannot remove image ${name}: snapshots still need its data.`, {
        hint: "Remove the snapshots made from it first.",
      });
    try {
      for (const each of names) await runtime.images.remove(each, { inUse });
    } catch (error) {
      if (!(error instanceof ForkdError) || error.code !== "IN_USE") throw error;
      throw new ForkdError("IN_USE", error.message.replace(stored, name), { hint: error.hint, cause: error });
    }
    events.append({ type: "image.deleted", project, principal, metadata: { image: name } });
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

/** With the names that the viewer's project gave it; in a list of every project, with all of them */
function imageInfo({ id, names: all, manifest }: StoredImage, { project }: Viewer): ImageInfo {
  const { created_at, architecture, rootfs, source, config } = manifest;
  const own = all.filter((name) => isOf(projectOf(name), project));
  const names = project === EVERY_PROJECT ? own : own.map((name) => shownName(name, project));
  return { id, names, created_at, architecture, bytes: rootfs.bytes, source, config };
}

function isId(name: string): boolean {
  return /^(sha256:)?[0-9a-f]{4,64}$/.test(name);
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

// Templates are snapshots with a tag. Those that every E2B has are made on first use, once for all who ask meanwhile.

import { ForkdError } from "../../errors.ts";
import { checkName } from "../../util/name.ts";
import { BUILT_IN } from "./built-in.ts";
import type { SnapshotInfo } from "../../api/snapshot.ts";
import type { Services } from "../../http/services.ts";
import type { Caller } from "../../manager/caller.ts";
import type { Progress } from "../../util/progress.ts";

type Needs = Pick<Services, "manager" | "log" | "daemon">;

export class Templates {
  readonly #services: Needs;
  /** by tag */
  readonly #making = new Map<string, Promise<void>>();

  constructor(services: Needs) {
    this.#services = services;
  }

  /** The snapshot that a template's id means; made now where it is one of those everybody has. Throws NOT_FOUND */
  async find(templateId: string, caller: Pick<Caller, "requestId">): Promise<SnapshotInfo> {
    const tag = tagOf(templateId);
    const { snapshots } = this.#services.manager;
    if (!Object.hasOwn(BUILT_IN, tag)) return snapshots.get(tag);
    const known = await this.#ready(tag);
    if (known) return known;
    let making = this.#making.get(tag);
    if (!making) {
      making = this.#make(tag, caller).finally(() => this.#making.delete(tag));
      this.#making.set(tag, making);
    }
    await making;
    return snapshots.get(tag);
  }

  async #make(tag: string, { requestId }: Pick<Caller, "requestId">): Promise<void> {
    const { manager, log, daemon } = this.#services;
    const recipe = BUILT_IN[tag];
    if (!recipe) return;
    // nobody's request: whoever asked first may go away
    const caller = { principal: "local", isAdmin: true, maxSandboxes: null, requestId, signal: daemon.stopping };
    let last = "";
    const progress: Progress = ({ step }) => {
      if (step !== last) log.info({ template: tag, step }, "a template is being made");
      last = step;
    };
    log.info({ template: tag, image: recipe.image.name }, "the template is not there yet and is made");
    const image = await manager.images.create(recipe.image, { ...caller, progress });
    await manager.snapshots.create({ ...recipe.snapshot, tag, image: image.names[0] ?? image.id }, { ...caller, progress });
    log.info({ template: tag }, "the template is ready");
  }

  /** Gives a snapshot another tag beside its own: as a copy, since it has one only, and in place of what had that tag */
  async copy(from: SnapshotInfo, to: string, caller: Caller): Promise<void> {
    const { snapshots } = this.#services.manager;
    await this.free(to, caller);
    await snapshots.compact(from.tag, to, caller);
    await snapshots.update(to, { metadata: from.metadata }, caller);
  }

  /** What sandboxes still need of what had it stays as long as they do */
  async free(tag: string, caller: Caller): Promise<void> {
    if (await this.exists(tag)) await this.#services.manager.snapshots.remove(tag, { force: true, cascade: undefined }, caller);
  }

  async exists(tag: string): Promise<boolean> {
    return (await this.#ready(tag)) !== null;
  }

  async #ready(tag: string): Promise<SnapshotInfo | null> {
    try {
      const info = await this.#services.manager.snapshots.get(tag);
      return info.status === "ready" ? info : null;
    } catch (error) {
      if (error instanceof ForkdError && error.code === "NOT_FOUND") return null;
      throw error;
    }
  }
}

/** `team/name:tag` is the snapshot `name.tag`; without a tag, or with the usual one, it is `name` */
export function tagOf(templateId: string): string {
  const [name = "", tag = "default"] = templateId.slice(templateId.lastIndexOf("/") + 1).split(":");
  return checkName("Template", tag === "default" || tag === "latest" ? name : `${name}.${tag}`);
}

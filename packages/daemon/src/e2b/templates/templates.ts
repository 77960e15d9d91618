// Templates: tagged snapshots. E2B's own are built from recipes on first use; concurrent requests share the build.

import { ForkdError } from "@forkd/runtime/errors";
import { isReservedTag, type ReservedTag } from "../../service/reserved-tags.ts";
import { checkName, NAME } from "@forkd/runtime/util/name";
import type { SnapshotInfo } from "../../api/snapshot.ts";
import type { Services } from "../../dispatch/services.ts";
import { DEFAULT_PROJECT, storedName } from "../../store/project-names.ts";
import type { Caller, Viewer } from "../../service/caller.ts";
import type { Progress } from "@forkd/runtime/util/progress";

/** Recipes of E2B's own templates, by tag */
export const TEMPLATE_RECIPES: Record<ReservedTag, string> = { base: "e2b-base", "code-interpreter-v1": "e2b-code-interpreter" };

type Asking = Pick<Caller, "requestId" | "project">;
type Found = Pick<SnapshotInfo, "id" | "tag" | "metadata">;
type Needs = Pick<Services, "manager" | "recipes" | "log" | "daemon">;

export class Templates {
  readonly #services: Needs;
  /** builds in progress, by tag */
  readonly #making = new Map<string, Promise<void>>();

  constructor(services: Needs) {
    this.#services = services;
  }

  /**
   * Id of the snapshot of a template id: one of the project, or TEAM/NAME, a public one of another project. Builds a missing
   * template of E2B's own, unless the project `default` offers one. Throws NOT_FOUND
   */
  async find(templateId: string, caller: Asking): Promise<Found> {
    const tag = tagOf(templateId);
    const { snapshots } = this.#services.manager;
    const offered = await this.#public(templateId, tag, caller);
    if (offered) return offered;
    if (!isReservedTag(tag)) return snapshots.get(tag, caller);
    const known = (await this.#ready(tag, caller)) ?? (await this.#public(`${DEFAULT_PROJECT}/${tag}`, tag, caller));
    if (known) return known;
    const key = storedName(tag, caller.project);
    let making = this.#making.get(key);
    if (!making) {
      making = this.#make(tag, caller).finally(() => this.#making.delete(key));
      this.#making.set(key, making);
    }
    await making;
    return snapshots.get(tag, caller);
  }

  /** The part before the slash may also be the client's own name of its team, which is none of a project */
  async #public(templateId: string, tag: string, caller: Asking): Promise<Found | undefined> {
    const at = templateId.lastIndexOf("/");
    const project = templateId.slice(0, at);
    if (at < 0 || project === caller.project || !NAME.test(project)) return undefined;
    try {
      const { manifest } = await this.#services.manager.snapshots.forkable(`${project}/${tag}`, caller);
      const { metadata } = await this.#services.manager.snapshots.get(manifest.id, { project });
      return { id: manifest.id, tag: `${project}/${tag}`, metadata };
    } catch (error) {
      if (error instanceof ForkdError && error.code === "NOT_FOUND") return undefined;
      throw error;
    }
  }

  async #make(tag: ReservedTag, { requestId, project }: Asking): Promise<void> {
    const { recipes, log, daemon } = this.#services;
    const recipe = TEMPLATE_RECIPES[tag];
    let last = "";
    const progress: Progress = ({ step }) => {
      if (step !== last) log.info({ template: tag, step }, "a template is being built");
      last = step;
    };
    // not the request's signal: other requests may wait for the same build
    const caller = {
      principal: "local",
      project,
      isAdmin: true,
      isOperator: true,
      maxSandboxes: null,
      requestId,
      signal: daemon.stopping,
      progress,
    };
    log.info({ template: tag, recipe }, "the template is missing and is built");
    await recipes.buildIncluded(recipe, caller);
    log.info({ template: tag }, "the template is ready");
  }

  /** Gives a snapshot a second tag by copying it, because a snapshot has one tag. Replaces the tag's old snapshot */
  async copy(from: SnapshotInfo, to: string, caller: Caller): Promise<void> {
    const { snapshots } = this.#services.manager;
    await this.free(to, caller);
    await snapshots.compact(from.tag, to, caller);
    await snapshots.update(to, { metadata: from.metadata }, caller);
  }

  /** Removes the snapshot that has the tag; its data is kept while sandboxes use it */
  async free(tag: string, caller: Caller): Promise<void> {
    if (await this.exists(tag, caller)) await this.#services.manager.snapshots.remove(tag, { force: true, cascade: undefined }, caller);
  }

  async exists(tag: string, viewer: Viewer): Promise<boolean> {
    return (await this.#ready(tag, viewer)) !== null;
  }

  async #ready(tag: string, viewer: Viewer): Promise<SnapshotInfo | null> {
    try {
      const info = await this.#services.manager.snapshots.get(tag, viewer);
      return info.status === "ready" ? info : null;
    } catch (error) {
      if (error instanceof ForkdError && error.code === "NOT_FOUND") return null;
      throw error;
    }
  }
}

/** `team/name:tag` is the snapshot `name.tag`; without a tag, or with the default tag, `name` */
export function tagOf(templateId: string): string {
  const { name, tag } = partsOf(templateId);
  return checkName("Template", tag === "default" || tag === "latest" ? name : `${name}.${tag}`);
}

/** Throws BAD_NAME for `:tag`, `name:` and `a:b:c`, which would map to the snapshots `.tag`, `name.` and `a.b` */
export function partsOf(templateId: string): { name: string; tag: string } {
  const [name = "", tag = "default", ...more] = templateId.slice(templateId.lastIndexOf("/") + 1).split(":");
  if (name === "" || tag === "" || more.length > 0)
    throw new ForkdError("BAD_NAME", `Template ${JSON.stringify(templateId)} is not a valid name: it must be NAME or NAME:TAG.`);
  return { name, tag };
}

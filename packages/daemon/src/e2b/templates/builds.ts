// The builds of templates that are asked for, under way and done: what they said, and how they ended.

import { randomUUID } from "node:crypto";
import { ForkdError, messageOf } from "../../errors.ts";
import { build, type Recipe } from "./build.ts";
import { tagOf, type Templates } from "./templates.ts";
import type { Services } from "../../http/services.ts";
import type { Caller } from "../../manager/caller.ts";
import type { Uploads } from "./uploads.ts";

const MAX_BUILDS = 100;
const MAX_ENTRIES = 10_000;
const MAX_MESSAGE = 4096;
const PAGE = 100;

type LogEntry = { timestamp: string; level: "info" | "error"; message: string; step: string };
type Status = "waiting" | "building" | "ready" | "error";

type Build = {
  id: string;
  template: string;
  tags: string[];
  shape: { vcpus: number | undefined; memoryMiB: number | undefined };
  status: Status;
  step: string;
  entries: LogEntry[];
  reason: { message: string; step: string } | null;
};

type Needs = Pick<Services, "manager" | "daemon" | "log">;

export class Builds {
  readonly #services: Needs;
  readonly #templates: Templates;
  readonly uploads: Uploads;
  readonly #all = new Map<string, Build>();

  constructor(services: Needs, templates: Templates, uploads: Uploads) {
    this.#services = services;
    this.#templates = templates;
    this.uploads = uploads;
  }

  request(template: string, tags: string[], shape: Build["shape"]): Build {
    const made: Build = { id: randomUUID(), template, tags, shape, status: "waiting", step: "base", entries: [], reason: null };
    this.#all.set(made.id, made);
    // the oldest that is over
    const [over] = [...this.#all.values()].filter(({ status }) => status === "ready" || status === "error");
    if (this.#all.size > MAX_BUILDS && over) this.#all.delete(over.id);
    return made;
  }

  start(template: string, id: string, recipe: Recipe, caller: Caller): void {
    const made = this.#get(template, id);
    if (made.status !== "waiting") throw new ForkdError("EXISTS", `Build ${id} of template ${template} was started before.`);
    made.status = "building";
    void this.#run(made, recipe, caller);
  }

  /** The log from an entry on, in pages: an empty one is the end */
  status(template: string, id: string, offset: number): object {
    const made = this.#get(template, id);
    const logEntries = made.entries.slice(offset, offset + PAGE);
    const reason = made.reason === null ? {} : { reason: { ...made.reason, logEntries: [] } };
    return { buildID: made.id, templateID: made.template, status: made.status, logs: [], logEntries, ...reason };
  }

  async #run(made: Build, recipe: Recipe, asked: Caller): Promise<void> {
    const { manager, daemon, log } = this.#services;
    const note = (message: string, level: LogEntry["level"] = "info"): void => {
      if (made.entries.length >= MAX_ENTRIES) return;
      made.entries.push({ timestamp: new Date().toISOString(), level, message: message.slice(0, MAX_MESSAGE), step: made.step });
    };
    // whoever asked may go away: it is theirs, and goes on
    const caller: Caller = { ...asked, signal: daemon.stopping, progress: ({ step }) => note(step) };
    const at = (step: string): void => void (made.step = step);
    const { template, shape } = made;
    const parts = {
      template,
      recipe,
      shape,
      services: { manager },
      templates: this.#templates,
      uploads: this.uploads,
      caller,
      log: note,
      at,
    };
    try {
      const fresh = await build(parts);
      await this.#name(made, fresh, caller);
      made.status = "ready";
    } catch (error) {
      const message = messageOf(error);
      note(message, "error");
      made.reason = { message, step: made.step };
      made.status = "error";
      log.warn({ err: error, template: made.template, build: made.id }, "a template could not be built");
    }
  }

  /** A snapshot has one tag: the first is a name, every other one a copy */
  async #name(made: Build, fresh: string, caller: Caller): Promise<void> {
    const [first = "", ...others] = made.tags.map((tag) => tagOf(`${made.template}:${tag}`));
    await this.#templates.free(first, caller);
    const named = await this.#services.manager.snapshots.update(fresh, { tag: first }, caller);
    for (const tag of others) await this.#templates.copy(named, tag, caller);
  }

  #get(template: string, id: string): Build {
    const made = this.#all.get(id);
    if (made?.template === template) return made;
    throw new ForkdError("NOT_FOUND", `There is no build ${id} of template ${template}.`);
  }
}

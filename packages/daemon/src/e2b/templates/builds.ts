// Template builds with status, logs and results.

import { randomUUID } from "node:crypto";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { jobOf, type Recipe } from "./build.ts";
import { tagOf, type Templates } from "./templates.ts";
import type { Services } from "../../dispatch/services.ts";
import type { Caller, Viewer } from "../../service/caller.ts";
import type { Accounts } from "../envd/accounts.ts";
import type { ProgressEvent } from "@forkd/runtime/util/progress";
import type { Uploads } from "./uploads.ts";

const MAX_BUILDS = 100;
const MAX_ENTRIES = 10_000;
const MAX_MESSAGE = 4096;
const PAGE = 100;

type LogEntry = { timestamp: string; level: "info" | "error"; message: string; step: string };
type Status = "waiting" | "building" | "ready" | "error";

type Build = {
  id: string;
  project: string;
  template: string;
  tags: string[];
  shape: { vcpus: number | undefined; memoryMiB: number | undefined };
  status: Status;
  step: string;
  entries: LogEntry[];
  reason: { message: string; step: string } | null;
};

type Needs = Pick<Services, "manager" | "recipes" | "daemon" | "log">;
type Parts = { templates: Templates; accounts: Accounts; uploads: Uploads };

export class Builds {
  readonly #services: Needs;
  readonly #templates: Templates;
  readonly #accounts: Accounts;
  readonly uploads: Uploads;
  readonly #all = new Map<string, Build>();

  constructor(services: Needs, { templates, accounts, uploads }: Parts) {
    this.#services = services;
    this.#templates = templates;
    this.#accounts = accounts;
    this.uploads = uploads;
  }

  request(template: string, tags: string[], shape: Build["shape"], { project }: Viewer): Build {
    const made: Build = { id: randomUUID(), project, template, tags, shape, status: "waiting", step: "base", entries: [], reason: null };
    this.#all.set(made.id, made);
    // evict the oldest finished build
    const [over] = [...this.#all.values()].filter(({ status }) => status === "ready" || status === "error");
    if (this.#all.size > MAX_BUILDS && over) this.#all.delete(over.id);
    return made;
  }

  start(template: string, id: string, recipe: Recipe, caller: Caller): void {
    const made = this.#get(caller, template, id);
    if (made.status !== "waiting") throw new ForkdError("EXISTS", `Build ${id} of template ${template} was started before.`);
    made.status = "building";
    void this.#run(made, recipe, caller);
  }

  /** Build status with one page of the log; an empty page is the end */
  status(viewer: Viewer, template: string, id: string, offset: number): object {
    const made = this.#get(viewer, template, id);
    const logEntries = made.entries.slice(offset, offset + PAGE);
    const reason = made.reason === null ? {} : { reason: { ...made.reason, logEntries: [] } };
    return { buildID: made.id, templateID: made.template, status: made.status, logs: [], logEntries, ...reason };
  }

  async #run(made: Build, recipe: Recipe, asked: Caller): Promise<void> {
    const { manager, recipes, daemon, log } = this.#services;
    const note = (message: string, level: LogEntry["level"] = "info"): void => {
      if (made.entries.length >= MAX_ENTRIES) return;
      made.entries.push({ timestamp: new Date().toISOString(), level, message: message.slice(0, MAX_MESSAGE), step: made.step });
    };
    const progress = ({ step, ms, cached }: ProgressEvent): void => {
      if (cached) note(`CACHED ${step}`);
      else if (ms === undefined) note(step);
    };
    // the build continues after the client's request ends
    const caller: Caller = { ...asked, signal: daemon.stopping, progress };
    const at = (step: string): void => void (made.step = step);
    const { template, shape } = made;
    const [first = "", ...others] = made.tags.map((tag) => tagOf(`${template}:${tag}`));
    const parts = {
      template,
      tag: first,
      recipe,
      shape,
      services: { manager },
      templates: this.#templates,
      accounts: this.#accounts,
      uploads: this.uploads,
      caller,
      log: note,
      at,
    };
    try {
      const { snapshot } = await recipes.run(await jobOf(parts), caller);
      // a snapshot has one tag; each further tag is a copy
      for (const tag of others) await this.#templates.copy(snapshot, tag, caller);
      made.status = "ready";
    } catch (error) {
      const message = messageOf(error);
      note(message, "error");
      made.reason = { message, step: made.step };
      made.status = "error";
      log.warn({ err: error, template: made.template, build: made.id }, "a template could not be built");
    }
  }

  #get({ project }: Viewer, template: string, id: string): Build {
    const made = this.#all.get(id);
    if (made?.template === template && made.project === project) return made;
    throw new ForkdError("NOT_FOUND", `There is no build ${id} of template ${template}.`);
  }
}

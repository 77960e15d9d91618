// One build of a template: a sandbox of what it begins with, its steps, and a snapshot of what came of them.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "../../errors.ts";
import { newId } from "../../util/id.ts";
import { DEFAULT_USER, USER_KEY, WORKDIR_KEY } from "../lifecycle.ts";
import { doStep, envOf, runCommand, type Place, type Step } from "./steps.ts";
import type { Services } from "../../http/services.ts";
import type { Caller } from "../../manager/caller.ts";
import type { Templates } from "./templates.ts";
import type { Uploads } from "./uploads.ts";

const MEMORY_MIB = 1024;
const READY_EVERY_MS = 500;
const READY_WITHIN_MS = 300_000;
/** Also where the image's useradd is another one, or there is such a user already */
const ADD_USER = "id user >/dev/null 2>&1 || useradd -m -s /bin/bash user 2>/dev/null || adduser -D -s /bin/bash user";

export type Recipe = {
  fromImage?: string | undefined;
  fromTemplate?: string | undefined;
  registry?: { username: string; password: string } | undefined;
  steps: Step[];
  startCmd?: string | undefined;
  readyCmd?: string | undefined;
};

export type Parts = {
  template: string;
  recipe: Recipe;
  shape: { vcpus: number | undefined; memoryMiB: number | undefined };
  services: Pick<Services, "manager">;
  templates: Templates;
  uploads: Uploads;
  caller: Caller;
  log: (message: string) => void;
  /** told which step begins: "base", its number, "finalize" */
  at: (step: string) => void;
};

/** Returns the tag of the new snapshot, which nobody knows yet */
export async function build(parts: Parts): Promise<string> {
  const { recipe, services, caller, log, at } = parts;
  const { manager } = services;
  await using stack = new AsyncDisposableStack();
  at("base");
  const base = await baseOf(parts, stack);
  const env = Object.assign(
    {},
    ...recipe.steps.filter(({ type }) => type.toUpperCase() === "ENV").map(({ args }) => envOf(args)),
  ) as object;
  const request = { snapshot_tag: base, n: 1, per_item: false, env: { ...env }, network: { mode: "open" as const }, ttl_secs: null };
  const [sandbox] = await manager.sandboxes.create(request, caller);
  if (!sandbox) throw new ForkdError("FORK_FAILED", `Cannot begin with ${base}: there is no sandbox.`);
  stack.defer(async () => manager.sandboxes.remove(sandbox.id, caller));
  const work = { ...parts, sandbox: sandbox.id };
  await runCommand(ADD_USER, { user: "root", workdir: "/", env: {} }, work);
  let place: Place = { user: DEFAULT_USER, workdir: `/home/${DEFAULT_USER}`, env: {} };
  for (const [index, step] of recipe.steps.entries()) {
    at(String(index + 1));
    log(`[${index + 1}/${recipe.steps.length}] ${step.type} ${step.args.join(" ")}`.trimEnd());
    place = await doStep(step, place, work);
  }
  at("finalize");
  await start(recipe, place, work);
  const metadata = { [USER_KEY]: place.user, [WORKDIR_KEY]: place.workdir };
  const { info } = await manager.branches.branch(sandbox.id, { wait: true, metadata }, caller);
  return info.tag;
}

/** A template as it is, or an image that is booted first */
async function baseOf(parts: Parts, stack: AsyncDisposableStack): Promise<string> {
  const { recipe, services, templates, caller, log, shape } = parts;
  const { fromImage, fromTemplate } = recipe;
  if (fromImage === undefined) {
    if (shape.memoryMiB !== undefined || shape.vcpus !== undefined)
      log("CPUs and memory are those of the template that it begins with: a snapshot keeps its machine.");
    return (await templates.find(fromTemplate ?? "base", caller)).tag;
  }
  const image = await imageOf(parts, fromImage);
  const tag = newId("br");
  log(`Booting ${fromImage}`);
  const request = { tag, image, memory_mib: shape.memoryMiB ?? MEMORY_MIB, vcpus: shape.vcpus ?? 1, warm_up: {} };
  await services.manager.snapshots.create(request, caller);
  stack.defer(async () => services.manager.snapshots.remove(tag, { force: true, cascade: undefined }, caller));
  return tag;
}

/** A stored image of that name, else one of a registry */
async function imageOf({ services, caller, recipe, log }: Parts, name: string): Promise<string> {
  const { images } = services.manager;
  try {
    return (await images.get(name)).id;
  } catch (error) {
    if (!(error instanceof ForkdError) || (error.code !== "NOT_FOUND" && error.code !== "BAD_NAME")) throw error;
  }
  log(`Pulling ${name}`);
  return (await images.create({ reference: name, ...recipe.registry }, caller)).id;
}

type Started = Parts & { sandbox: string };

/** What the template is to have running; it is in the snapshot as it is */
async function start({ startCmd, readyCmd }: Recipe, place: Place, work: Started): Promise<void> {
  const { services, sandbox, caller, log } = work;
  const { user, workdir: cwd, env } = place;
  if (startCmd) {
    log(`Starting ${startCmd}`);
    const args = ["/bin/bash", "-l", "-c", startCmd];
    await services.manager.processes.start(sandbox, { args, user, cwd, env, stdin: false }, caller);
  }
  if (!readyCmd) return;
  log(`Waiting for ${readyCmd}`);
  const deadline = Date.now() + READY_WITHIN_MS;
  for (;;) {
    const request = { args: ["/bin/bash", "-l", "-c", readyCmd], user, cwd, env, timeout_secs: READY_WITHIN_MS / 1000 };
    const { exit_code: code } = await services.manager.inside.exec(sandbox, { ...request, encoding: "utf8", max_output_bytes: 0 }, caller);
    if (code === 0) return;
    if (Date.now() > deadline) throw new ForkdError("WARMUP_FAILED", `The template did not become ready: ${readyCmd}`);
    await sleep(READY_EVERY_MS, undefined, { signal: caller.signal });
  }
}

// Translation of an E2B template into a job of the recipe engine, which caches the steps.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "@forkd/runtime/errors";
import { firstKey, keyAfter } from "../../recipe/plan.ts";
import { DEFAULT_USER, USER_KEY, WORKDIR_KEY } from "../lifecycle.ts";
import { addUser, changesGuest, doStep, envOf, placeAfter, type Place, type Step } from "./steps.ts";
import type { Services } from "../../dispatch/services.ts";
import type { Caller } from "../../service/caller.ts";
import type { Boot, Job, Layer } from "../../recipe/engine.ts";
import type { Accounts } from "../envd/accounts.ts";
import type { Templates } from "./templates.ts";
import type { Uploads } from "./uploads.ts";

const MEMORY_MIB = 1024;
const READY_EVERY_MS = 500;
const READY_WITHIN_MS = 300_000;
const OPEN = { mode: "open" as const };

export type Recipe = {
  fromImage?: string | undefined;
  fromTemplate?: string | undefined;
  registry?: { username: string; password: string } | undefined;
  steps: Step[];
  startCmd?: string | undefined;
  readyCmd?: string | undefined;
  /** ignore the step cache */
  force?: boolean | undefined;
};

export type Parts = {
  template: string;
  /** tag of the snapshot */
  tag: string;
  recipe: Recipe;
  shape: { vcpus: number | undefined; memoryMiB: number | undefined };
  services: Pick<Services, "manager">;
  templates: Templates;
  accounts: Accounts;
  uploads: Uploads;
  caller: Caller;
  log: (message: string) => void;
  /** called when a step starts: "base", its number, or "finalize" */
  at: (step: string) => void;
};

export async function jobOf(parts: Parts): Promise<Job<undefined>> {
  const { recipe, template, tag, at } = parts;
  at("base");
  const env = Object.assign(
    {},
    ...recipe.steps.filter(({ type }) => type.toUpperCase() === "ENV").map(({ args }) => envOf(args)),
  ) as Record<string, string>;
  const start = await startOf(parts, env);
  let key = keyAfter(typeof start === "string" ? firstKey({ snapshot: start, env, network: OPEN }) : start.key, { user: DEFAULT_USER });
  const layers: Layer[] = [
    { key, title: `USER ${DEFAULT_USER}`, work: async (guest) => addUser(DEFAULT_USER, { ...parts, sandbox: guest.id }, { sudo: true }) },
  ];
  let forced: number | undefined = recipe.force ? 0 : undefined;
  let place: Place = { user: DEFAULT_USER, workdir: `/home/${DEFAULT_USER}`, env: {} };
  const offset = typeof start === "string" ? 0 : 1;
  for (const [index, step] of recipe.steps.entries()) {
    const { type, args, filesHash } = step;
    const content = filesHash === undefined ? undefined : await parts.uploads.digest(parts.caller.project, template, filesHash);
    key = keyAfter(key, { template: type, args, content });
    if (step.force) forced ??= offset + layers.length;
    const before = place;
    place = placeAfter(step, place);
    if (!changesGuest(step)) continue;
    const work: Layer["work"] = async (guest) => {
      at(String(index + 1));
      await doStep(step, before, { ...parts, sandbox: guest.id });
    };
    layers.push({ key, title: `${type} ${args.join(" ")}`.trimEnd(), work });
  }
  const last = place;
  return {
    recipe: template,
    tag,
    start,
    layers,
    key: keyAfter(key, { start: recipe.startCmd, ready: recipe.readyCmd, place }),
    env,
    network: OPEN,
    networkOfForks: OPEN,
    metadata: { [USER_KEY]: place.user, [WORKDIR_KEY]: place.workdir },
    ...(forced === undefined ? {} : { reusable: forced }),
    finish: async (guest) => {
      at("finalize");
      await startProgram(recipe, last, { ...parts, sandbox: guest.id });
    },
    verify: async () => undefined,
  };
}

/** Snapshot id of the base template, or an image to boot */
async function startOf(parts: Parts, env: Record<string, string>): Promise<string | Boot> {
  const { recipe, services, templates, caller, log, shape } = parts;
  const { fromImage, fromTemplate } = recipe;
  if (fromImage === undefined) {
    if (shape.memoryMiB !== undefined || shape.vcpus !== undefined)
      log("CPUs and memory are those of the template that it is built on: a snapshot keeps its machine.");
    return (await templates.find(fromTemplate ?? "base", caller)).id;
  }
  const image = await imageOf(parts, fromImage);
  const machine = { memory_mib: shape.memoryMiB ?? MEMORY_MIB, vcpus: shape.vcpus ?? 1 };
  return {
    key: firstKey({ image, machine, env, network: OPEN }),
    title: `FROM ${fromImage}`,
    work: async ({ tag, metadata }) =>
      void (await services.manager.snapshots.create({ tag, image, ...machine, metadata, warm_up: {} }, caller)),
  };
}

/** Id of the stored image with that name; otherwise pulls it from a registry */
async function imageOf({ services, caller, recipe, log }: Parts, name: string): Promise<string> {
  const { images } = services.manager;
  try {
    return (await images.get(name, caller)).id;
  } catch (error) {
    if (!(error instanceof ForkdError) || (error.code !== "NOT_FOUND" && error.code !== "BAD_NAME")) throw error;
  }
  log(`Pulling ${name}`);
  return (await images.create({ reference: name, ...recipe.registry }, caller)).id;
}

type Started = Parts & { sandbox: string };

/** Starts the template's start command and waits until the ready command succeeds */
async function startProgram({ startCmd, readyCmd }: Recipe, place: Place, work: Started): Promise<void> {
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
    const { exit_code: code } = await services.manager.execution.exec(
      sandbox,
      { ...request, encoding: "utf8", max_output_bytes: 0 },
      caller,
    );
    if (code === 0) return;
    if (Date.now() > deadline) throw new ForkdError("WARMUP_FAILED", `The template did not become ready: ${readyCmd}`);
    await sleep(READY_EVERY_MS, undefined, { signal: caller.signal });
  }
}

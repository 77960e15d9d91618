// A build as the command line shows it.

import { codeOf } from "../errors.ts";
import { printJson, printLine, printNote, writeGuestText } from "../terminal/output.ts";
import { showProgress } from "../terminal/progress.ts";
import { registryLogin, registryOf } from "../options/registry-login.ts";

import type { BuildRecipeOptions, BuiltRecipe, Controller, RegistryLogin } from "forkd";
import type { Cli } from "../cli.ts";

export type BuildFlags = {
  tag?: string | undefined;
  set?: Record<string, string> | undefined;
  test?: boolean | undefined;
  noCache?: boolean;
};

/** Builds a recipe, with its steps on stderr unless `isSilent` */
export async function buildRecipe(cli: Cli, forkd: Controller, recipe: string, flags: BuildFlags, isSilent: boolean): Promise<BuiltRecipe> {
  using display = showProgress();
  const onProgress: BuildRecipeOptions["onProgress"] = (event) => {
    const { step, ms, cached } = event;
    if (ms === undefined && cached === undefined) display.onEvent(event);
    else if (!isSilent) printNote(`${step}: ${cached ? "done before" : seconds(ms ?? 0)}`);
  };
  try {
    return await forkd.buildRecipe(recipe, { ...flags, registry: loginFor, onProgress, timeoutMs: 0, signal: cli.signal });
  } catch (error) {
    display[Symbol.dispose]();
    await showOutput(error);
    throw error;
  }
}

export function printBuilt(cli: Cli, built: BuiltRecipe, { quiet }: { quiet?: boolean | undefined } = {}): void {
  const { tag, unchanged, tests, ms } = built;
  const tested = tests.length === 0 ? "" : ` ${tests.length} ${tests.length === 1 ? "test" : "tests"} passed.`;
  if (cli.json) printJson(built);
  else if (quiet) printLine(tag);
  else printLine(`Snapshot ${tag}: ${unchanged ? "nothing changed" : `ready after ${seconds(ms)}`}.${tested}`);
}

/** The end of what a step, a check or a test printed before it failed */
async function showOutput(error: unknown): Promise<void> {
  const code = codeOf(error);
  if (code !== "BUILD_FAILED" && code !== "TESTS_FAILED") return;
  const output = (error as { details?: { output?: unknown } }).details?.output;
  if (typeof output === "string" && output !== "") await writeGuestText(output, "stderr");
}

async function loginFor(reference: string): Promise<RegistryLogin | undefined> {
  const { username, password } = await registryLogin(registryOf(reference));
  return username === undefined || password === undefined ? undefined : { username, password };
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

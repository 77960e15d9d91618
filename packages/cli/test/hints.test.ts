// Hints of the daemon, translated to the command line.

import assert from "node:assert/strict";
import { glob, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { inOwnWords } from "../src/hints.ts";
import { buildProgram } from "../src/program.ts";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";

import type { Command } from "commander";
import type { Cli } from "../src/cli.ts";

const PACKAGES = resolve(import.meta.dirname, "..", "..");
/** Strings of the daemon's source that become hints */
const HINT = /(?:hint(?::| =)|_HINT =|HOW =|[A-Z_]+: \{ status: \d+, hint:)\s*(?:"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`)/g;

test("fields become options, routes become verbs", () => {
  assert.equal(
    inOwnWords("Use `cascade=true`, `tag=TAG`, `max_bytes` or `stdin=true`; `GET /v1/images` lists."),
    "Use --cascade, --tag TAG, --max-bytes or -i; 'forkd image ls' lists.",
  );
  assert.equal(inOwnWords("Run 'forkd doctor'."), "Run 'forkd doctor'.");
});

test("the error of a refused command names its options", async () => {
  const hint = "Remove what needs it, or use `cascade=true` or `force=true`.";
  await using daemon = await fakeDaemon({ "DELETE /v1/snapshots/t": problem(409, "IN_USE", "It is needed.", hint) });
  const { stderr } = await forkd(["snapshot", "rm", "t"], daemon.env);
  assert.match(stderr, /or use --cascade or --force\. \[IN_USE\]/);
  const { stdout } = await forkd(["snapshot", "rm", "t", "--json"], daemon.env);
  assert.match(stdout, /or use --cascade or --force\./);
});

test("the error of a missing object names the verb that lists them", async () => {
  const hint = "Did you mean python? `GET /v1/snapshots` lists what there is.";
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes": problem(404, "NOT_FOUND", "There is no snapshot pyton.", hint) });
  const { stderr } = await forkd(["fork", "pyton"], daemon.env);
  assert.equal(stderr, "forkd: There is no snapshot pyton.\nDid you mean python? 'forkd snapshot ls' lists what there is. [NOT_FOUND]\n");
});

test("every API name in a hint of the daemon has an option or a verb", async () => {
  const program = await buildProgram({} as Cli, "all");
  const options = new Set(commandsIn(program).flatMap((command) => command.options.flatMap(({ long, short }) => [long, short])));
  const hints = await daemonHints();
  assert.ok(hints.length > 100, `only ${hints.length} hints were found`);
  for (const hint of hints) {
    for (const [, name = ""] of hint.matchAll(/`([^`]+)`/g)) {
      const own = inOwnWords(`\`${name}\``);
      if (own.startsWith("-")) assert.ok(options.has(own.split(" ")[0]), `no command has ${own}: ${hint}`);
      else assert.ok(verbExists(program, own), `no verb for ${name}: ${hint}`);
    }
    const rest = hint.replaceAll(/`[^`]+`/g, "");
    assert.doesNotMatch(rest, /\b(GET|POST|PUT|PATCH|DELETE) [/…]|\?\w+=|\b\w+=true\b/, "put names of the API in backticks");
  }
});

async function daemonHints(): Promise<string[]> {
  const files = await Array.fromAsync(glob("{runtime,daemon}/src/**/*.ts", { cwd: PACKAGES }));
  const texts = await Promise.all(files.map(async (file) => readFile(join(PACKAGES, file), "utf8")));
  const written = texts.flatMap((text) => [...text.matchAll(HINT)].map(([, quoted, template]) => quoted ?? template ?? ""));
  const lists = await readFile(join(PACKAGES, "runtime", "src", "util", "not-found.ts"), "utf8");
  const filledIn = [...lists.matchAll(/: "(GET [^"]+)"/g)].map(([, route]) => `\`${route}\``);
  assert.ok(filledIn.length > 5);
  return [...written.filter((hint) => !hint.includes("${LISTS")), ...filledIn].map((hint) => hint.replaceAll("\\`", "`"));
}

function commandsIn(command: Command): Command[] {
  return [command, ...command.commands.flatMap(commandsIn)];
}

/** `'forkd snapshot ls'`, possibly with arguments in capitals */
function verbExists(program: Command, quoted: string): boolean {
  const [, words = ""] = /^'forkd (.+)'$/.exec(quoted) ?? [];
  let at: Command | undefined = words === "" ? undefined : program;
  for (const word of words.split(" ").filter((part) => part !== part.toUpperCase()))
    at = at?.commands.find((command) => command.name() === word || command.aliases().includes(word));
  return at !== undefined;
}

// Help, completion and usage of every verb.

import assert from "node:assert/strict";
import { test } from "node:test";
import { EXAMPLES } from "../src/examples.ts";
import { buildProgram, verbOf } from "../src/program.ts";
import { VERB_GROUPS } from "../src/verbs.ts";
import { forkd } from "./helpers.ts";

import type { Command } from "commander";
import type { Cli } from "../src/cli.ts";

const VERBS = VERB_GROUPS.flatMap(({ verbs }) => verbs);
const CLI: Cli = {
  signal: new AbortController().signal,
  json: false,
  exitCode: 0,
  daemonUrl: undefined,
  daemonToken: undefined,
  project: undefined,
  autostart: true,
};

function everyCommand(command: Command, path: string[] = []): { path: string[]; command: Command }[] {
  return command.commands.flatMap((child) => {
    const childPath = [...path, child.name()];
    return [{ path: childPath, command: child }, ...everyCommand(child, childPath)];
  });
}

test("every verb's module has the verb of its name, and every option a description", async () => {
  const program = await buildProgram(CLI, "all");
  assert.deepEqual(
    program.commands.map((command) => command.name()),
    VERBS.map((verb) => verb.name),
  );
  for (const { path, command } of everyCommand(program)) {
    assert.notEqual(command.description(), "", path.join(" "));
    for (const option of command.options) assert.ok(option.description || option.hidden, `${path.join(" ")} ${option.flags}`);
  }
});

test("the help lists every verb in its group", async () => {
  const { code, stdout, stderr } = await forkd(["--help"], { FORKD_TOKEN: "a-secret-token" });
  assert.deepEqual([code, stderr], [0, ""]);
  for (const { title, verbs } of VERB_GROUPS) {
    assert.ok(stdout.includes(`\n${title}\n`));
    for (const verb of verbs) assert.match(stdout, new RegExp(`^  ${verb.name}  +\\S`, "m"));
  }
  assert.doesNotMatch(stdout, /a-secret-token/);
  assert.match(stdout, /\nExamples:\n {2}forkd quickstart /);
});

test("only the verb that was called is loaded", async () => {
  assert.equal(verbOf(["--daemon-url", "ls", "--no-autostart", "fork", "ls"]), "fork");
  assert.equal(verbOf(["help", "cp"]), "cp");
  assert.equal(verbOf(["--help"]), undefined);
  const loaded = (await buildProgram(CLI, { verb: "cp" })).commands.filter((command) => command.options.length > 0);
  assert.deepEqual(
    loaded.map((command) => command.name()),
    ["cp"],
  );
});

test("--help of every verb prints and ends with 0, without the token", { concurrency: 2 }, async (t) => {
  const program = await buildProgram(CLI, "all");
  const env = { FORKD_TOKEN: "a-secret-token", FORKD_URL: "http://127.0.0.1:9" };
  for (const { path } of everyCommand(program).filter(({ path }) => path.length === 1 || path[0] === "snapshot")) {
    await t.test(path.join(" "), async () => {
      const { code, stdout, stderr } = await forkd([...path, "--help", "--daemon-token", "another-secret"], env);
      assert.deepEqual([code, stderr], [0, ""]);
      assert.match(stdout, new RegExp(`^Usage: forkd ${path.join(" ")}\\b`));
      assert.doesNotMatch(stdout, /a-secret-token|another-secret/);
    });
  }
});

test("the help of every verb has examples, which name it and only options that it has", async () => {
  const program = await buildProgram(CLI, "all");
  const all = everyCommand(program);
  for (const { path, command } of all) {
    let help = "";
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    const [, text = ""] = help.split("\nExamples:\n");
    const lines = text.trim().split("\n");
    assert.ok(lines.some((line) => line.includes(`forkd ${path.join(" ")}`)) || command.commands.length > 0, `${path.join(" ")}: ${text}`);
    for (const line of lines) for (const part of line.split("forkd ").slice(1)) assertParses(part, all, line);
  }
  const known = new Set(all.map(({ path }) => path.join(" ")));
  assert.deepEqual(
    Object.keys(EXAMPLES).filter((path) => !known.has(path)),
    [""],
  );
});

/** A command line without its first word: what comes before -- is the verb, its options and its arguments */
function assertParses(text: string, all: { path: string[]; command: Command }[], line: string): void {
  const words = (text.split(/ -- | \| |\)/)[0] ?? "").split(/ (?=(?:[^']*'[^']*')*[^']*$)/).filter(Boolean);
  const found = all.findLast(({ path }) => path.every((word, i) => words[i] === word));
  assert.ok(found, line);
  for (const word of words.slice(found.path.length).filter((each) => /^-./.test(each))) {
    const flags = word.startsWith("--")
      ? [word]
      : word
          .slice(1)
          .split("")
          .map((letter) => `-${letter}`);
    for (const flag of flags)
      assert.ok(
        found.command.options.some(({ short, long }) => short === flag || long === flag),
        `${line}: ${flag}`,
      );
  }
}

test("the completion has every verb, nested verb and option", async () => {
  const program = await buildProgram(CLI, "all");
  const { stdout } = await forkd(["completion", "bash"]);
  for (const { path, command } of everyCommand(program)) {
    if (path.includes("kernel") || path.includes("candidates")) continue;
    const line = stdout.split("\n").find((text) => text.trimStart().startsWith(`"${path.join(" ")}") words=`));
    assert.ok(line, path.join(" "));
    for (const option of command.options)
      if (!option.hidden && option.long) assert.ok(line.includes(option.long), `${path.join(" ")} ${option.long}`);
  }
});

test("a missing argument is a usage error that names the verb's help", async () => {
  for (const args of [
    ["fork"],
    ["kill"],
    ["kill", "a", "--all"],
    ["extend", "a"],
    ["exec", "a"],
    ["exec", "-it", "a", "--", "sh"],
    ["sh", "a"],
    ["shell", "a"],
    ["rm"],
    ["stop"],
    ["ps"],
    ["attach", "a"],
    ["signal", "a"],
    ["signal", "a", "b", "NOTHING"],
    ["eval", "a"],
    ["snapshot-diff"],
    ["run", "--", "x"],
  ]) {
    const { code, stdout, stderr } = await forkd(args);
    assert.deepEqual([code, stdout], [2, ""], args.join(" "));
    assert.match(stderr, new RegExp(`^forkd: .*\\nRun 'forkd ${args[0]} --help'\\. \\[USAGE\\]\\n$`), args.join(" "));
  }
});

test("a program's options without -- are explained", async () => {
  const { code, stderr } = await forkd(["exec", "sb-1", "ls", "-l"]);
  assert.equal(code, 2);
  assert.match(stderr, /^forkd: unknown option '-l'\.\nPut '--' before what is to be run: forkd exec … -- ls -l\. \[USAGE\]\n$/);
});

test("global options are accepted before and after the verb", async () => {
  for (const args of [
    ["--daemon-url", "http://127.0.0.1:9", "ls"],
    ["ls", "--daemon-url", "http://127.0.0.1:9"],
    ["snapshot", "ls", "--daemon-url=http://127.0.0.1:9"],
  ]) {
    const { code, stderr } = await forkd(args);
    assert.equal(code, 1);
    assert.match(stderr, /127\.0\.0\.1:9/, args.join(" "));
  }
});

test("root plumbing of the older forkd is accepted with one note", async () => {
  const { stderr } = await forkd(["snapshot", "--tag", "t", "--tap", "x", "--rw", "--no-autostart"], { FORKD_RUN: "/nonexistent/x" });
  assert.match(stderr, /^Note: --rw, --tap have no effect: .*\nforkd: No daemon answers/);
});

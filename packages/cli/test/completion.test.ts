// Completion of names, in real shells.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { fakeDaemon, problem, type FakeDaemon } from "./fake-daemon.ts";
import { FORKD, forkd, temporaryFolder } from "./helpers.ts";
import * as samples from "./samples.ts";

const run = promisify(execFile);

/** Candidates after these words; the last one is being typed */
type Complete = (...words: string[]) => Promise<string[]>;

let daemon: FakeDaemon;

before(async () => {
  daemon = await fakeDaemon({
    "GET /v1/sandboxes": { json: [samples.sandbox("sb-1", { name: "web" }), samples.sandbox("sb-2")] },
    "GET /v1/snapshots": {
      json: [
        samples.snapshot("python"),
        samples.snapshot("build-x-1", { metadata: { "forkd.build": "x" } }),
        samples.snapshot("sl-1", { ephemeral: true }),
      ],
    },
    "GET /v1/recipes": { json: [{ name: "postgres-fixture", tag: "postgres-fixture", description: "PostgreSQL.", variables: {} }] },
    "GET /v1/images": { json: [samples.image("python-numpy")] },
  });
});

after(async () => daemon[Symbol.asyncDispose]());

test("the candidates are names of existing objects", async () => {
  const names = async (kind: string): Promise<string[]> => {
    const { code, stdout, stderr } = await forkd(["completion", "candidates", kind], daemon.env);
    assert.deepEqual([code, stderr], [0, ""]);
    return stdout.trim().split("\n");
  };
  assert.deepEqual(await names("sandboxes"), ["web", "sb-1", "sb-2"]);
  assert.deepEqual(await names("places"), ["web:", "sb-2:"]);
  assert.deepEqual(await names("snapshots"), ["python"]);
  assert.deepEqual(await names("images"), ["python-numpy"]);
  assert.deepEqual(await names("recipes"), ["postgres-fixture"]);
});

test("without a working daemon there are no candidates, no start and no message", async () => {
  await using broken = await fakeDaemon({ "GET /v1/sandboxes": problem(500, "INTERNAL", "It fails.") });
  for (const env of [{ FORKD_RUN: "/nonexistent/forkd", FORKD_NO_AUTOSTART: "" }, broken.env])
    assert.deepEqual(await forkd(["completion", "candidates", "sandboxes"], env), { code: 0, stdout: "", stderr: "" });
});

const SHELLS: Record<string, (script: string) => Complete> = {
  bash:
    (script) =>
    async (...words) => {
      const program = `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _forkd; printf '%s\\n' "\${COMPREPLY[@]}"`;
      return lines((await inShell("bash", ["-uc", program, script, "forkd", ...words])).stdout);
    },
  // zsh completes only at a terminal, so stubs replace its functions that take the result
  zsh:
    (script) =>
    async (...words) => {
      const program = `
      compdef() {}
      _files() {}
      _describe() { for item in $items; do [[ $item == $words[CURRENT]* ]] && print -r -- \${item%%:*}; done }
      compadd() { for item in $names; do [[ $item == $words[CURRENT]* ]] && print -r -- $item; done }
      source $1; shift; words=("$@"); CURRENT=$#; _forkd; true`;
      return lines((await inShell("zsh", ["-fc", program, "zsh", script, "forkd", ...words])).stdout);
    },
  fish:
    (script) =>
    async (...words) => {
      const { stdout } = await inShell("fish", ["--no-config", "-c", `source ${script}; complete -C "forkd ${words.join(" ")}"`]);
      return lines(stdout).map((line) => line.split("\t")[0] ?? "");
    },
};

for (const [shell, completer] of Object.entries(SHELLS)) {
  test(`${shell} completes sandboxes, tags, recipes and images where the verb takes them`, async (context) => {
    if (!(await run(shell, ["-c", "true"]).catch(() => undefined))) return context.skip(`${shell} is not installed`);
    await using folder = await temporaryFolder();
    const script = join(folder.path, `completion.${shell}`);
    await writeFile(script, (await forkd(["completion", shell])).stdout);
    const complete = completer(script);
    assert.deepEqual(await complete("exec", "w"), ["web"]);
    assert.deepEqual(await complete("kill", "sb-1", "sb-"), ["sb-1", "sb-2"]);
    assert.deepEqual(await complete("fork", "py"), ["python"]);
    assert.deepEqual(await complete("snapshot", "rm", "p"), ["python"]);
    assert.deepEqual(await complete("kill", "--tag", "p"), ["python"]);
    assert.deepEqual(await complete("snapshot", "create", "x", "--image", "py"), ["python-numpy"]);
    assert.deepEqual(await complete("build", "postg"), ["postgres-fixture"]);
    assert.ok((await complete("cp", "w")).includes("web:"));
    assert.deepEqual(await complete("fork", "--nam"), ["--name"]);
    assert.deepEqual(await complete("doc"), ["doctor"]);
    assert.ok(!(await complete("exec", "web", "--", "w")).includes("web"), "what is run is not a sandbox");
  });
}

/** With forkd in PATH, as the scripts call it */
async function inShell(shell: string, args: string[]): Promise<{ stdout: string }> {
  const env = { ...process.env, ...daemon.env, PATH: `${dirname(FORKD)}:${process.env["PATH"] ?? ""}`, FORKD_NO_AUTOSTART: "1" };
  return run(shell, args, { env, cwd: daemon.folder });
}

function lines(text: string): string[] {
  return text.split("\n").filter(Boolean).toSorted();
}

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { FORKD, forkd, temporaryFolder } from "./helpers.ts";

const VERBS = [
  ["doctor"],
  ["image"],
  ["image", "build"],
  ["image", "pull"],
  ["image", "import"],
  ["image", "ls"],
  ["image", "inspect"],
  ["image", "rm"],
  ["completion"],
  ["version"],
];

test("the help lists every verb", async () => {
  const { code, stdout, stderr } = await forkd(["--help"]);
  assert.equal(code, 0);
  assert.equal(stderr, "");
  for (const [verb = ""] of VERBS) assert.match(stdout, new RegExp(`^  ${verb}\\b`, "m"));
});

for (const verb of VERBS) {
  test(`${verb.join(" ")} --help prints its usage`, async () => {
    const { code, stdout } = await forkd([...verb, "--help"]);
    assert.equal(code, 0);
    assert.match(stdout, new RegExp(`^Usage: forkd ${verb.join(" ")}`));
  });
}

test("version prints the version, as text and as JSON", async () => {
  const text = await forkd(["version"]);
  assert.match(text.stdout, /^forkd \d+\.\d+\.\d+ \(node 24\./);
  const json = JSON.parse((await forkd(["version", "--json"])).stdout) as { forkd: string };
  assert.match(json.forkd, /^\d+\.\d+\.\d+$/);
  assert.equal((await forkd(["--version"])).stdout.trim(), json.forkd);
});

test("an unknown verb is a usage error and suggests the right one", async () => {
  const { code, stdout, stderr } = await forkd(["docter"]);
  assert.equal(code, 2);
  assert.equal(stdout, "");
  assert.equal(stderr, "forkd: unknown command 'docter'.\nDid you mean doctor? Run 'forkd --help'. [USAGE]\n");
});

test("usage errors are JSON with --json", async () => {
  const { code, stdout, stderr } = await forkd(["image", "ls", "--json", "--nonsense"]);
  assert.equal(code, 2);
  assert.equal(stderr, "");
  assert.equal((JSON.parse(stdout) as { code: string }).code, "USAGE");
});

test("a group without a verb prints its help and is a usage error", async () => {
  const { code, stderr } = await forkd(["image"]);
  assert.equal(code, 2);
  assert.match(stderr, /^Usage: forkd image/);
});

test("the bash completion is valid and has verbs, nested verbs and options", async () => {
  await using folder = await temporaryFolder();
  const script = join(folder.path, "completion.bash");
  await writeFile(script, (await forkd(["completion", "bash"])).stdout);
  const complete = async (...words: string[]): Promise<string[]> => {
    const program = `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _forkd; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout } = await promisify(execFile)("bash", ["-euc", program, script, ...words]);
    return stdout.split("\n").filter(Boolean);
  };
  await promisify(execFile)("bash", ["-n", script]);
  assert.deepEqual(await complete("forkd", "doc"), ["doctor"]);
  assert.deepEqual(await complete("forkd", "image", "i"), ["import", "inspect"]);
  assert.ok((await complete("forkd", "image", "build", "--p")).includes("--packages"));
  assert.deepEqual(await complete("forkd", "completion", "z"), ["zsh"]);
});

test("the zsh and fish completions name every verb", async () => {
  for (const shell of ["zsh", "fish"]) {
    const { code, stdout } = await forkd(["completion", shell]);
    assert.equal(code, 0);
    for (const verb of ["doctor", "image", "build", "version"]) assert.ok(stdout.includes(verb), `${shell}: ${verb}`);
  }
});

test("an unknown shell is a usage error", async () => {
  assert.equal((await forkd(["completion", "tcsh"])).code, 2);
});

test("runs through a symbolic link from another folder", async () => {
  await using folder = await temporaryFolder();
  const link = join(folder.path, "forkd");
  await symlink(FORKD, link);
  const { stdout } = await promisify(execFile)(link, ["version"], { cwd: folder.path });
  assert.match(stdout, /^forkd /);
});

test("a reader that closes the pipe is no error", async () => {
  const child = spawn(FORKD, ["completion", "zsh"], { stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.destroy();
  let stderr = "";
  child.stderr.on("data", (chunk) => (stderr += String(chunk)));
  const [code] = (await once(child, "close")) as [number];
  assert.equal(stderr, "");
  assert.equal(code, 0);
});

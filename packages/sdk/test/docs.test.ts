// Packages that the docs install must be this project's, by path, or known packages. An unregistered name could be registered by
// anyone, and its code would run on the machines of users who follow the docs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { glob, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

const ROOT = resolve(import.meta.dirname, "..", "..", "..");

/** Packages of others that the docs may install. Each was looked up in its registry */
const KNOWN = {
  npm: ["e2b", "@e2b/code-interpreter"],
  pypi: ["e2b", "e2b-code-interpreter"],
};

type Registry = keyof typeof KNOWN;

/** Commands that install or run a package, up to its name */
const COMMANDS: [Registry, RegExp][] = [
  ["npm", /\bnpm (?:i|install|add|exec|x|create|init)\b(.*)/g],
  ["npm", /\b(?:npx|bunx|pnpx)\b(.*)/g],
  ["npm", /\b(?:pnpm|yarn|bun) (?:add|dlx|x)\b(.*)/g],
  ["pypi", /\bpip3? install\b(.*)/g],
  ["pypi", /\b(?:pipx (?:install|run)|uvx|uv (?:add|pip install|tool install|tool run))\b(.*)/g],
];
/** Their options whose value is not a package */
const WITH_VALUE = new Set(["-r", "--requirement", "-c", "--constraint", "-t", "--target", "--index-url", "-i", "--prefix"]);

test("every package that the docs install is in this repository or in a registry", async () => {
  for (const file of await markdownFiles()) {
    for (const { registry, name } of packagesIn(await readFile(join(ROOT, file), "utf8")))
      assert.ok(KNOWN[registry].includes(name), `${file} installs ${name} from ${registry}: it is not on the list of packages that exist`);
  }
});

test("names are found in commands and in the settings of MCP clients", () => {
  const found = (text: string): string[] => packagesIn(text).map(({ registry, name }) => `${registry} ${name}`);
  assert.deepEqual(found("Run `npx -y forkd-mcp@1.0` now."), ["npm forkd-mcp"]);
  assert.deepEqual(found('{ "command": "npx", "args": ["-y", "forkd-mcp"] }'), ["npm forkd-mcp"]);
  assert.deepEqual(found('{ "command": "uvx", "args": ["forkd-mcp"] }'), ["pypi forkd-mcp"]);
  assert.deepEqual(found("npm install --global @a/b e2b@^2 # both"), ["npm @a/b", "npm e2b"]);
  assert.deepEqual(found("npm install x@npm:forkd-vm"), ["npm forkd-vm"]);
  assert.deepEqual(found("    .venv/bin/pip install -r needed.txt 'e2b[x]>=2' && true"), ["pypi e2b"]);
  for (const ours of ["pip install ./python", "pip install -e ../forkd/python", "npm install", "npm install forkd@file:/path/dist/sdk"])
    assert.deepEqual(found(ours), [], ours);
});

test("pip runs in a virtual environment, because Debian and Ubuntu refuse it elsewhere", async () => {
  for (const file of await markdownFiles()) {
    const text = await readFile(join(ROOT, file), "utf8");
    for (const line of text.split("\n")) assert.doesNotMatch(line, /(?<!bin\/)\bpip3? install/, `${file}: ${line}`);
  }
});

test("the README says how its programs are run, and they find the SDK", async () => {
  const text = await readFile(join(ROOT, "README.md"), "utf8");
  const before = (fence: string): string => text.slice(0, text.indexOf(fence)).trimEnd().split("\n\n").at(-1) ?? "";
  assert.match(before("```python"), /`PYTHONPATH=python\/src python3 dist\/example\.py`/);
  const [, node = "", program = ""] = /`(\S+node) (dist\/\S+\.ts)`/.exec(text) ?? [];
  assert.equal(program, "dist/example.ts");
  // beside it: the file itself may be a user's
  const folder = join(ROOT, "dist", `readme-test-${process.pid}`);
  await mkdir(folder, { recursive: true });
  try {
    await writeFile(join(folder, "example.ts"), 'import { Sandbox } from "forkd";\nconsole.log(typeof Sandbox.create);\n');
    const { stdout } = await promisify(execFile)(join(ROOT, node), [join(folder, "example.ts")]);
    assert.equal(stdout, "function\n");
  } finally {
    await rm(folder, { recursive: true });
  }
});

function packagesIn(text: string): { registry: Registry; name: string }[] {
  const lines = text.replaceAll(/"command": "(npx|uvx)",\s*"args": \[([^\]]*)\]/g, (_all, command: string, args: string) => {
    return `\n${command} ${args.replaceAll(/[",]/g, " ")}\n`;
  });
  return COMMANDS.flatMap(([registry, pattern]) =>
    [...lines.matchAll(pattern)].flatMap(([command = "", args = ""]) => {
      const isRun = /\b(?:npx|bunx|pnpx|uvx|exec|dlx|run|x)\b/.test(command.slice(0, command.length - args.length));
      const names = namesIn(args);
      // arguments after the package name belong to the package's program
      return (isRun ? names.slice(0, 1) : names).map((name) => ({ registry, name }));
    }),
  );
}

function namesIn(args: string): string[] {
  // up to the end of the command: a comment, another command, the end of inline code, prose
  const words = (args.split(/\s#|&&|\|\||[;|`)]|\.\s/)[0] ?? "").trim().split(/\s+/);
  return words.flatMap((raw, index) => {
    const word = raw.replaceAll(/["',]/g, "");
    if (word === "" || word.startsWith("-") || WITH_VALUE.has(words[index - 1] ?? "")) return [];
    const aliased = /^[^@]+@npm:(.+)$/.exec(word)?.[1] ?? word;
    if (/^(\.|\/|~)|^file:|@file:/.test(aliased)) return [];
    return [/^@?[^@[<>=~^]+/.exec(aliased)?.[0] ?? aliased];
  });
}

async function markdownFiles(): Promise<string[]> {
  const left = new Set(["node_modules", "target", "dist", "vendor", ".git"]);
  const files = await Array.fromAsync(glob("**/*.md", { cwd: ROOT, exclude: (name) => left.has(basename(name)) }));
  assert.ok(files.includes("README.md"));
  return files;
}

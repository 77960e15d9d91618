// The examples, and the environment of each: its packages, installed once into a cache folder.

import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { copyFile, mkdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
export const ROOT = resolve(import.meta.dirname, "..", "..");
const EXAMPLES = join(ROOT, "examples");
const CACHE = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "forkd-examples");
const INSTALL_MS = 900_000;
const PYTHON_FILES = ["requirements.txt", "requirements.lock"];
const NODE_FILES = ["package.json", "package-lock.json"];
const NPM_OPTIONS = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
const PIP_OPTIONS = ["--quiet", "--disable-pip-version-check", "--no-input"];

/** The program and its arguments */
export type CommandLine = { program: string; args: string[] };

/** What an environment is made of, and the interpreter it is for */
type Key = { files: string[]; for: string };

/** `note` is called with the name of a slow step */
export type PrepareOptions = { note: (message: string) => void; signal?: AbortSignal };

export function exampleNames(): string[] {
  const folders = readdirSync(EXAMPLES, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return folders.map(({ name }) => name).filter((name) => existsSync(agentFile(name, "py")) || existsSync(agentFile(name, "ts")));
}

/** What runs the example, after its packages were installed if they were not */
export async function prepareExample(name: string, opts: PrepareOptions): Promise<CommandLine> {
  const limits = { timeout: INSTALL_MS, signal: opts.signal };
  if (existsSync(agentFile(name, "py"))) {
    // an environment belongs to the interpreter that it was made with
    const { stdout } = await run("python3", ["-c", "import sys; print(sys.executable, sys.version)"]);
    const folder = await cached(name, { files: PYTHON_FILES, for: stdout }, opts, async (dir) => {
      await run("python3", ["-m", "venv", dir], limits);
      const [wanted = "", pinned = ""] = PYTHON_FILES.map((file) => join(EXAMPLES, name, file));
      await run(join(dir, "bin", "python"), ["-m", "pip", "install", ...PIP_OPTIONS, "-r", wanted, "-c", pinned], limits);
    });
    return { program: join(folder, "bin", "python"), args: [agentFile(name, "py")] };
  }
  const folder = await cached(name, { files: NODE_FILES, for: process.version }, opts, async (dir) => {
    await mkdir(dir);
    for (const file of NODE_FILES) await copyFile(join(EXAMPLES, name, file), join(dir, file));
    await run("npm", ["install", "--no-save", ...NPM_OPTIONS], { cwd: dir, ...limits });
  });
  return {
    program: process.execPath,
    args: ["--disable-warning=ExperimentalWarning", "--preserve-symlinks-main", await nextTo(folder, name)],
  };
}

function agentFile(name: string, extension: "py" | "ts"): string {
  return join(EXAMPLES, name, `agent.${extension}`);
}

/** Made under another name first: what has its own name is complete */
async function cached(name: string, key: Key, { note }: PrepareOptions, make: (dir: string) => Promise<void>): Promise<string> {
  const hash = createHash("sha256").update(key.for);
  for (const file of key.files) hash.update(await readFile(join(EXAMPLES, name, file)));
  const place = join(CACHE, `${name}-${hash.digest("hex").slice(0, 16)}`);
  if (existsSync(place)) return place;
  note(`installing the packages of ${name} into ${place}`);
  await mkdir(CACHE, { recursive: true });
  const making = `${place}.${randomBytes(4).toString("hex")}`;
  try {
    await make(making);
    await rename(making, place);
  } catch (error) {
    // another run may have installed it meanwhile
    if (!existsSync(place)) throw error;
  } finally {
    await rm(making, { recursive: true, force: true });
  }
  return place;
}

/** Node looks for packages beside the program: here lie a link to it, one to its packages, and further up the SDK */
async function nextTo(folder: string, name: string): Promise<string> {
  const dir = join(ROOT, "dist", "examples", name);
  await mkdir(dir, { recursive: true });
  const links = [
    [join(folder, "node_modules"), join(dir, "node_modules")],
    [agentFile(name, "ts"), join(dir, "agent.ts")],
  ] as const;
  for (const [target, path] of links) {
    const fresh = `${path}.${randomBytes(4).toString("hex")}`;
    await symlink(target, fresh);
    await rename(fresh, path);
  }
  await writeFile(join(dir, "package.json"), '{ "type": "module" }\n');
  return join(dir, "agent.ts");
}

// Static test sites: a Git repository, a Python package index and a Debian repository.

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Makes git/tool.git, simple/tiny/ and apt/ in the folder */
export async function makeSites(dir: string): Promise<void> {
  await Promise.all([makeGit(dir), makeIndex(dir), makeDebian(dir)]);
}

async function makeGit(dir: string): Promise<void> {
  const work = join(dir, "work");
  const bare = join(dir, "git", "tool.git");
  await mkdir(work, { recursive: true });
  await writeFile(join(work, "README"), "from git\n");
  const git = async (...args: string[]): Promise<unknown> =>
    run("git", ["-C", work, "-c", "user.name=t", "-c", "user.email=t@t.test", ...args]);
  await git("init", "--quiet", "--initial-branch=main");
  await git("add", "README");
  await git("commit", "--quiet", "--message", "first");
  await run("git", ["clone", "--quiet", "--bare", work, bare]);
  // the dumb HTTP protocol needs this index
  await run("git", ["-C", bare, "update-server-info"]);
}

/** A wheel is a zip file that contains its metadata */
async function makeIndex(dir: string): Promise<void> {
  const page = join(dir, "simple", "tiny");
  await mkdir(page, { recursive: true });
  const wheel = join(page, "tiny-1.0-py3-none-any.whl");
  const script = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("tiny.py", "WORD = 'from a wheel'\\n")
    z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
    z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    z.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\\ntiny-1.0.dist-info/METADATA,,\\ntiny-1.0.dist-info/WHEEL,,\\ntiny-1.0.dist-info/RECORD,,\\n")
`;
  await run("python3", ["-c", script, wheel]);
  const digest = createHash("sha256")
    .update(await readFile(wheel))
    .digest("hex");
  await writeFile(
    join(page, "index.html"),
    `<!DOCTYPE html><a href="tiny-1.0-py3-none-any.whl#sha256=${digest}">tiny-1.0-py3-none-any.whl</a>\n`,
  );
}

/** A flat Debian repository with one package */
async function makeDebian(dir: string): Promise<void> {
  const root = join(dir, "deb");
  const repository = join(dir, "apt");
  await mkdir(join(root, "DEBIAN"), { recursive: true });
  await mkdir(join(root, "usr", "share"), { recursive: true });
  await mkdir(repository, { recursive: true });
  const control = "Package: tiny-tool\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t.test>\nDescription: from a package\n";
  await writeFile(join(root, "DEBIAN", "control"), control);
  await writeFile(join(root, "usr", "share", "tiny-tool"), "from a package\n");
  const file = join(repository, "tiny-tool.deb");
  await run("dpkg-deb", ["--build", "--root-owner-group", root, file]);
  const digest = createHash("sha256")
    .update(await readFile(file))
    .digest("hex");
  await writeFile(
    join(repository, "Packages"),
    `${control}Filename: ./tiny-tool.deb\nSize: ${(await stat(file)).size}\nSHA256: ${digest}\n`,
  );
}

// A host folder with all kinds of entries, and a check that a guest sees the same.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { patience } from "./patience.ts";

import type { Sandbox } from "forkd";

const MANY = 1000;

/** Walks a folder in the guest; prints the same as `walk` returns */
const WALK = `
import hashlib, json, os, stat, sys
def walk(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            kind = "link" if stat.S_ISLNK(info.st_mode) else "folder" if stat.S_ISDIR(info.st_mode) else "file"
            entry = [kind, stat.S_IMODE(info.st_mode), str(info.st_mtime_ns)]
            if kind == "file":
                with open(path, "rb") as f: entry += [info.st_size, hashlib.sha256(f.read()).hexdigest()]
            if kind == "link": entry.append(os.readlink(path))
            assert info.st_uid == 0 and info.st_gid == 0, path
            found[os.fsencode(os.path.relpath(path, root)).hex()] = entry
    return found
print(json.dumps(walk(sys.argv[1])))
`;

export class SharedFolder implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /** Makes a small tree: folders, files, links, unusual names, a program, a Python package */
  static async make(): Promise<SharedFolder> {
    const folder = new SharedFolder(await mkdtemp(join(tmpdir(), "forkd-test-share-")));
    const { path } = folder;
    await chmod(path, 0o755);
    await mkdir(join(path, "a", "b", "c"), { recursive: true });
    await mkdir(join(path, "empty"));
    await mkdir(join(path, "package"));
    await writeFile(join(path, "file"), "content\n");
    await writeFile(join(path, "nothing"), "");
    await writeFile(join(path, "a", "b", "c", "deep"), randomBytes(300_000));
    await writeFile(join(path, "new\nline and ü"), "odd");
    await writeFile(Buffer.concat([Buffer.from(`${path}/`), Buffer.from([0x66, 0xff])]), "bytes");
    await writeFile(join(path, "tool"), '#!/bin/sh\necho "tool in $(pwd) got $(cat)"\n', { mode: 0o755 });
    await writeFile(join(path, "private"), "private\n", { mode: 0o600 });
    await writeFile(join(path, "package", "__init__.py"), "from .inner import answer\n");
    await writeFile(join(path, "package", "inner.py"), "answer = 42\n");
    await symlink("a/b/c/deep", join(path, "link"));
    await symlink("nowhere", join(path, "dangling"));
    return folder;
  }

  /** Adds a file of this size and returns its MD5, the fastest hash in an emulated guest */
  async addLarge(name: string, size: number): Promise<string> {
    const content = randomBytes(size);
    await writeFile(join(this.path, name), content);
    return createHash("md5").update(content).digest("hex");
  }

  async addMany(): Promise<void> {
    await mkdir(join(this.path, "many"));
    await Promise.all(Array.from({ length: MANY }, async (_, n) => writeFile(join(this.path, "many", `file-${n}`), `content ${n}`)));
  }

  /** All entries of the folder as the host sees them */
  async walk(): Promise<Record<string, unknown[]>> {
    const found: Record<string, unknown[]> = {};
    const visit = async (below: Buffer): Promise<void> => {
      const at = (name: Buffer): Buffer => (below.length === 0 ? name : Buffer.concat([below, Buffer.from("/"), name]));
      const real = (path: Buffer): Buffer => Buffer.concat([Buffer.from(`${this.path}/`), path]);
      for (const name of await readdir(real(below), { encoding: "buffer" })) {
        const info = await lstat(real(at(name)), { bigint: true });
        const entry = [Number(info.mode & 0o777n), String(info.mtimeNs)];
        const key = at(name).toString("hex");
        if (info.isSymbolicLink()) found[key] = ["link", ...entry, await readlink(real(at(name)))];
        else if (info.isDirectory()) found[key] = ["folder", ...entry];
        else {
          const content = await readFile(real(at(name)));
          found[key] = ["file", ...entry, content.length, createHash("sha256").update(content).digest("hex")];
        }
        if (info.isDirectory()) await visit(at(name));
      }
    };
    await visit(Buffer.alloc(0));
    return found;
  }

  /** Asserts that the guest sees exactly the same entries */
  async assertSeen(sandbox: Sandbox, target: string): Promise<void> {
    const { exit_code, stdout, stderr } = await sandbox.exec(["python3", "-c", WALK, target], { timeoutSecs: patience() / 1000 });
    assert.equal(exit_code, 0, stderr);
    assert.deepEqual(JSON.parse(stdout), await this.walk());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

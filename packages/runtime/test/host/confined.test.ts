// Host programs that parse untrusted files see nothing of the host and have limits.

import assert from "node:assert/strict";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { test, type TestContext } from "node:test";
import { confinedWords, startConfined } from "../../src/host/confined.ts";
import { installation } from "../../src/host/installation.ts";
import { run } from "../../src/host/command.ts";
import { importImage } from "../../src/image/import.ts";
import { catSquashfs } from "../image/helpers/squashfs.ts";
import { tarOf } from "../image/helpers/tar.ts";
import { tempDir, tempHome } from "../image/helpers/temp-home.ts";

const { obstacle } = await confinedWords(["cat"], {});
const skip = obstacle === undefined ? false : `this host does not allow it: ${obstacle}`;

const SEEN = `
import os, socket, sys
def tried(what, act):
    try: act(); print(what)
    except OSError as error: print(what, type(error).__name__)
print(sorted(set(os.listdir("/")) - {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}), os.listdir("/etc"))
print(sorted(os.environ), os.getpid())
tried("read", lambda: open("/etc/passwd"))
tried("write", lambda: open("/usr/x", "w"))
tried("socket", lambda: socket.socket())
tried("fork", os.fork)
open(sys.argv[1], "w").write("mine")
tried("long", lambda: os.truncate(sys.argv[1], 2000))
print(sys.stdin.read())
`;

/** A program that is found before the host's own; it cannot start the real one */
async function instead(t: TestContext, name: string, script: string): Promise<void> {
  const dir = await tempDir(t);
  await writeFile(join(dir, name), script);
  await chmod(join(dir, name), 0o755);
  const { PATH } = process.env;
  process.env["PATH"] = `${dir}:${PATH}`;
  t.after(() => (process.env["PATH"] = PATH));
}

/** Fails when it can see the host */
const CAUTIOUS = `#!/usr/bin/python3 -I
import lzma, os, sys
if os.path.exists("/etc/passwd"): sys.exit("it sees the host")
if sys.argv[1] in ("--version", "-version"): sys.exit()
`;
const FAKES: Record<string, string> = {
  xz: `${CAUTIOUS}sys.stdout.buffer.write(lzma.decompress(sys.stdin.buffer.read()))`,
  sqfstar: `${CAUTIOUS}sys.stdin.buffer.read()\nopen(sys.argv[-1], "w").write("made by a fake")`,
};

test("a confined program sees and writes only the given paths", { skip }, async (t) => {
  const own = join(await tempDir(t), "own");
  await writeFile(own, "");
  process.env["FORKD_TEST_SECRET"] = "s";
  const { PATH } = process.env;
  // python3 elsewhere may be a script that starts other programs
  process.env["PATH"] = "/usr/bin";
  t.after(() => {
    delete process.env["FORKD_TEST_SECRET"];
    process.env["PATH"] = PATH;
  });
  const opts = { write: [own], maxFileBytes: 1000, env: { A: "b" } };
  const child = await startConfined(["python3", "-I", "-c", SEEN, own], opts);
  child.stdin.end("from the pipe");
  const [said] = await Promise.all([text(child.stdout), child.done]);
  const place = own.split("/")[1] ?? "";
  assert.deepEqual(said.trim().split("\n"), [
    `['dev', 'etc', '${place}'] ['ld.so.cache']`,
    "['A', 'HOME', 'LC_ALL', 'PATH'] 1",
    "read FileNotFoundError",
    "write OSError",
    "socket PermissionError",
    "fork PermissionError",
    "long OSError",
    "from the pipe",
  ]);
  assert.equal(await readFile(own, "utf8"), "mine");
});

test("memory and processor time are bounded", { skip }, async () => {
  const confine = [installation.warden, "--confine", "--memory-bytes", "300000000", "--seconds", "1", "--"];
  await assert.rejects(run([...confine, "/usr/bin/python3", "-c", "bytes(10**9)"]), { message: /MemoryError/ });
  await assert.rejects(run([...confine, "/usr/bin/sha256sum", "/dev/zero"]), { message: /exit status 137/ });
});

test("a confined program ends with the process that started it", { skip }, async () => {
  const stop = new AbortController();
  const child = await startConfined(["cat"], { signal: stop.signal });
  stop.abort();
  await assert.rejects(child.done, { code: "CANCELLED" });
});

for (const [name, fake] of Object.entries(FAKES)) {
  test(`${name} of an image is confined`, { skip }, async (t) => {
    const dir = await tempDir(t);
    await writeFile(join(dir, "x.tar"), tarOf([{ path: "etc/" }, { path: "etc/motd", content: "hello" }]));
    await run(["xz", join(dir, "x.tar")]);
    await instead(t, name, fake);
    const { rootfsPath } = await importImage(await tempHome(t), join(dir, "x.tar.xz"), { name: "x", confinement: "required" });
    if (name === "xz") assert.equal(await catSquashfs(rootfsPath, "etc/motd"), "hello");
    else assert.equal(await readFile(rootfsPath, "utf8"), "made by a fake");
  });
}

test("where the host does not allow it, the policy decides", async (t) => {
  await instead(t, "cat", "#!/bin/sh\n[ -e /etc/passwd ] || { echo no namespace for you >&2; exit 3; }\necho plain\n");
  await assert.rejects(startConfined(["cat"], { confinement: "required" }), {
    code: "CONFINEMENT_UNAVAILABLE",
    message: /^Cannot run cat: it must be confined, and this host does not allow it: /,
  });
  const child = await startConfined(["cat"], { confinement: "preferred" });
  child.stdin.end();
  assert.equal(await text(child.stdout), "plain\n");
});

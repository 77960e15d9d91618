// scripts/setup.sh with stubs of the tools that it calls.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { chmod, copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { temporaryFolder } from "./helpers.ts";

const ROOT = resolve(import.meta.dirname, "..", "..", "..");
/** Longer than the set-up is silent during a step */
const SLOW_SECS = 7;

type Ended = { code: number; output: string };

/** A checkout with npm packages and without Rust binaries; `cargo` is a shell script */
async function setUp(folder: string, cargo: string): Promise<Ended> {
  const bin = join(folder, "bin");
  for (const name of ["bin", "scripts", "node_modules/.bin", ".cargo", "vendor", "guest", "warden", "wire", "target/release"])
    await mkdir(join(folder, name), { recursive: true });
  await copyFile(join(ROOT, "scripts", "setup.sh"), join(folder, "scripts", "setup.sh"));
  for (const name of ["Cargo.toml", "Cargo.lock", "package-lock.json", "node_modules/.package-lock.json"])
    await writeFile(join(folder, name), "");
  for (const name of ["forkd-agent", "forkd-warden"]) await program(join(folder, "target", "release", name), "");
  await program(join(folder, "forkd"), "");
  const nothingToDo = ["qemu-system-x86_64", "qemu-img", "mkfs.ext4", "mmdebstrap", "sqfstar", "newuidmap", "xz", "zstd", "gcc", "npm"];
  for (const name of nothingToDo) await program(join(bin, name), "");
  await program(join(bin, "node"), "echo v24.0.0");
  // builds the dashboard
  await program(join(folder, "node_modules", ".bin", "node"), "");
  await program(join(bin, "rustc"), 'while [ "$1" != -o ]; do shift; done; touch "$2"; chmod +x "$2"');
  await program(join(bin, "cargo"), cargo);
  return new Promise((done) => {
    const env = { ...process.env, PATH: `${bin}:/usr/bin:/bin`, CARGO_TARGET_DIR: join(folder, "target") };
    execFile("bash", [join(folder, "scripts", "setup.sh")], { env }, (error, stdout, stderr) => {
      done({ code: typeof error?.code === "number" ? error.code : 0, output: stdout + stderr });
    });
  });
}

async function program(path: string, script: string): Promise<void> {
  await writeFile(path, `#!/bin/sh\n${script}\n`);
  await chmod(path, 0o755);
}

test("a slow build shows its duration and cargo's current step", async () => {
  await using folder = await temporaryFolder();
  const { code, output } = await setUp(folder.path, `echo "   Compiling forkd-agent v0.1.0" >&2; sleep ${SLOW_SECS}`);
  assert.equal(code, 0, output);
  assert.match(output, /^setup: building the guest agent and the warden$/m);
  assert.match(output, /^setup: building the guest agent and the warden \(\d+ s\): Compiling forkd-agent v0\.1\.0$/m);
  assert.match(output, /^setup: ready$/m);
});

test("a failed build shows the whole output of cargo", async () => {
  await using folder = await temporaryFolder();
  const { code, output } = await setUp(folder.path, 'echo "first line" >&2; echo "error: no linker" >&2; exit 101');
  assert.equal(code, 101);
  assert.match(output, /^first line\nerror: no linker$/m);
  assert.doesNotMatch(output, /setup: ready/);
});

test("cargo is not allowed to use the network", async () => {
  await using folder = await temporaryFolder();
  const { code, output } = await setUp(folder.path, 'case " $* " in *" --frozen "*) ;; *) echo "$*"; exit 1 ;; esac');
  assert.equal(code, 0, output);
});

test("every crate of the lock file is vendored, unchanged since, with its licence", async () => {
  const lock = await readFile(join(ROOT, "Cargo.lock"), "utf8");
  const locked = [...lock.matchAll(/^name = "(.+)"\nversion = ".+"\nsource = .+\nchecksum = "(.+)"$/gm)];
  assert.deepEqual(
    locked.map(([, name]) => name),
    (await readdir(join(ROOT, "vendor"))).toSorted(),
  );
  for (const [, name = "", sum] of locked) {
    const folder = join(ROOT, "vendor", name);
    const sums = JSON.parse(await readFile(join(folder, ".cargo-checksum.json"), "utf8")) as {
      package: string;
      files: Record<string, string>;
    };
    assert.equal(sums.package, sum, name);
    for (const [file, wanted] of Object.entries(sums.files))
      assert.equal(
        createHash("sha256")
          .update(await readFile(join(folder, file)))
          .digest("hex"),
        wanted,
        `${name}/${file}`,
      );
    assert.match(await readFile(join(folder, "Cargo.toml"), "utf8"), /^license = "(MIT OR Apache-2\.0|MIT\/Apache-2\.0)"$/m);
    assert.ok("LICENSE-APACHE" in sums.files, name);
  }
});

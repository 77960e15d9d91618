// The set-up with the distribution's Rust, which is older than most, and without a network.
// Runs in make test-all only: it downloads Debian's cargo and rustc.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, it } from "node:test";
import { promisify } from "node:util";
import { patience } from "../helpers/patience.ts";

const ROOT = resolve(import.meta.dirname, "..", "..");
const run = promisify(execFile);

let folder: string;
let skip: string | undefined;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "forkd-test-setup-"));
  skip = await fetchRust(join(folder, "debs"), join(folder, "rust"));
});

after(async () => rm(folder, { recursive: true, force: true }));

it("builds with the distribution's cargo and no network", async (context) => {
  if (skip !== undefined) return context.skip(skip);
  const checkout = join(folder, "checkout");
  for (const name of [".cargo", "Cargo.toml", "Cargo.lock", "guest", "warden", "wire", "vendor", "scripts"])
    await cp(join(ROOT, name), join(checkout, name), { recursive: true });
  // the set-up skips npm, the dashboard and the guest kernel, because their results exist
  for (const name of ["node_modules", "packages/ui", "packages/sdk/src", "dist/ui"]) await mkdir(join(checkout, name), { recursive: true });
  for (const name of ["package-lock.json", "node_modules/.package-lock.json", "dist/ui/index.html"])
    await writeFile(join(checkout, name), "");
  await writeFile(join(checkout, "forkd"), "#!/bin/sh\n");
  await chmod(join(checkout, "forkd"), 0o755);
  const rust = join(folder, "rust", "usr");
  const env = {
    HOME: join(folder, "home"),
    PATH: `${rust}/bin:/usr/bin:/bin:${join(ROOT, "node_modules", ".bin")}`,
    LD_LIBRARY_PATH: `${rust}/lib/x86_64-linux-gnu`,
    // a quarter of the build time, with the same code
    CARGO_PROFILE_RELEASE_LTO: "off",
    CARGO_PROFILE_RELEASE_OPT_LEVEL: "0",
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS: "16",
  };
  const { stdout } = await run("unshare", ["--map-root-user", "--net", join(checkout, "scripts", "setup.sh")], {
    env,
    timeout: patience(60),
  });
  assert.match(stdout, /^setup: building the guest agent and the warden\nsetup: ready\n$/);
  for (const name of ["forkd-agent", "forkd-warden", "forkd-read-only.so"])
    assert.ok((await stat(join(checkout, "dist", "bin", name))).size > 0, name);
});

/** Unpacks cargo and rustc beside the installed Rust. Returns the reason if that is not possible */
async function fetchRust(debs: string, root: string): Promise<string | undefined> {
  await mkdir(join(debs, "partial"), { recursive: true });
  const options = ["-o", `Dir::Cache::Archives=${debs}/`, "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="];
  try {
    await run("unshare", ["--map-root-user", "--net", "true"]);
    await run("apt-get", ["install", "--yes", "--no-install-recommends", "--download-only", ...options, "cargo", "rustc"]);
  } catch (error) {
    return `cannot fetch the distribution's cargo: ${String(error)}`;
  }
  // no files: the packages are installed
  for (const deb of (await readdir(debs)).filter((name) => name.endsWith(".deb"))) await run("dpkg-deb", ["-x", join(debs, deb), root]);
  return undefined;
}

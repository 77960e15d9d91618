// Fills vendor/ with the crates of the agent and the warden, so that a build needs no crate index.
// Usage, after a version change in a Cargo.toml: node_modules/.bin/node scripts/vendor.ts [CRATE...]
// Updates the named crates to the newest version that the manifests allow. This script needs the crate index.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "..");
const VENDOR = join(ROOT, "vendor");
/** Tables of a manifest that refer to crates of other systems, or to files that are not vendored */
const UNUSED_TABLE = /^\[+(dev-dependencies|example|test|bench|target\..*(windows|redox))/;

type Crate = { name: string; version: string; sum: string };

const work = await mkdtemp(join(tmpdir(), "forkd-vendor-"));
try {
  for (const name of ["Cargo.toml", "Cargo.lock", "guest", "warden", "wire"])
    await cp(join(ROOT, name), join(work, name), { recursive: true });
  const updated = process.argv.slice(2);
  if (updated.length > 0) cargo(work, ["update", ...updated.flatMap((name) => ["--package", name])]);
  cargo(work, ["build", "--release"]);
  const used = await filesThatRustcRead(join(work, "target", "release"));
  const crates = cratesOf(await readFile(join(work, "Cargo.lock"), "utf8"));
  await rm(VENDOR, { recursive: true, force: true });
  for (const crate of crates) {
    const files = used.filter(({ folder }) => folder.endsWith(`/${crate.name}-${crate.version}`));
    const [first] = files;
    if (first) await vendorCrate(crate, first.folder, new Set(files.map(({ file }) => file)));
  }
  // removes entries that the vendored manifests no longer name
  cargo(ROOT, ["metadata", "--offline", "--format-version", "1"]);
} finally {
  await rm(work, { recursive: true, force: true });
}

function cargo(cwd: string, args: string[]): void {
  execFileSync("cargo", args, {
    cwd,
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, CARGO_TARGET_DIR: join(work, "target") },
  });
}

/**
 * Files that rustc has read, from its dependency files: libc has 6 MB for all systems, of which Linux on x86-64 uses a
 * tenth
 */
async function filesThatRustcRead(folder: string): Promise<{ folder: string; file: string }[]> {
  const registry = join(process.env["CARGO_HOME"] || join(homedir(), ".cargo"), "registry", "src");
  const notes = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith(".d"));
  const paths = new Set<string>();
  for (const note of notes) {
    for (const line of (await readFile(join(folder, note), "utf8")).split("\n")) {
      if (line.startsWith(registry) && line.endsWith(":")) paths.add(line.slice(0, -1));
    }
  }
  return [...paths].map((path) => {
    const [index = "", crate = "", ...rest] = relative(registry, path).split("/");
    return { folder: join(registry, index, crate), file: rest.join("/") };
  });
}

function cratesOf(lock: string): Crate[] {
  return [...lock.matchAll(/^name = "(.+)"\nversion = "(.+)"\nsource = .+\nchecksum = "(.+)"$/gm)].map(([, name, version, sum]) => ({
    name: name ?? "",
    version: version ?? "",
    sum: sum ?? "",
  }));
}

async function vendorCrate({ name, sum }: Crate, source: string, used: Set<string>): Promise<void> {
  const target = join(VENDOR, name);
  const licences = (await readdir(source)).filter((file) => /^(LICENSE|COPYING|NOTICE)/i.test(file));
  const sums: Record<string, string> = {};
  for (const file of [...used, ...licences, "Cargo.toml"].toSorted()) {
    const original = await readFile(join(source, file));
    const content = file === "Cargo.toml" ? Buffer.from(withoutUnused(original.toString())) : original;
    await mkdir(dirname(join(target, file)), { recursive: true });
    await writeFile(join(target, file), content);
    sums[file] = createHash("sha256").update(content).digest("hex");
  }
  await writeFile(join(target, ".cargo-checksum.json"), `${JSON.stringify({ files: sums, package: sum }, null, 1)}\n`);
}

function withoutUnused(manifest: string): string {
  const [head = "", ...tables] = manifest.split(/^(?=\[)/m);
  return [head, ...tables.filter((table) => !UNUSED_TABLE.test(table))].join("");
}

// Builds the npm packages in dist/sdk and dist/mcp, or in FOLDER: plain JavaScript for Node 20 (mcp: 22) or later.
// Usage: node scripts/build-npm.ts [FOLDER]

import { execFile } from "node:child_process";
import { chmod, copyFile, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const root = resolve(import.meta.dirname, "..");
const out = resolve(process.argv[2] ?? join(root, "dist"));

/**
 * Package names on npm. In this repository the packages are `forkd` and `forkd-mcp`; on PyPI these names belong to
 * another project
 */
const NAMES = { sdk: "forkd-vm", mcp: "forkd-vm-mcp" };

const sdkEntry = { types: "./index.d.ts", default: "./index.js" };
await build("sdk", "sdk-ts.md", { exports: { ".": sdkEntry }, sideEffects: false });
await build("mcp", "mcp.md", { bin: { "forkd-mcp": "./bin.js" } });
await chmod(join(out, "mcp", "bin.js"), 0o755);
console.log(`The packages are in ${out}. Publish each with 'npm publish FOLDER'.`);

async function build(name: keyof typeof NAMES, readme: string, more: object): Promise<void> {
  const source = join(root, "packages", name);
  const folder = join(out, name);
  await rm(folder, { recursive: true, force: true });
  await promisify(execFile)(join(root, "node_modules", ".bin", "tsc"), ["-p", join(source, "tsconfig.build.json"), "--outDir", folder]);
  const all = JSON.parse(await readFile(join(source, "package.json"), "utf8")) as Record<string, unknown>;
  const kept = ["version", "description", "license", "type", "engines"].flatMap((key) => (key in all ? [[key, all[key]]] : []));
  const dependencies = published(all["dependencies"] as Record<string, string> | undefined);
  const manifest = { name: NAMES[name], ...(Object.fromEntries(kept) as object), ...dependencies, ...more };
  await writeFile(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
  await copyFile(join(root, "LICENSE"), join(folder, "LICENSE"));
  await copyFile(join(root, "docs", readme), join(folder, "README.md"));
}

/** Dependencies with the SDK's npm name as an alias; the code still imports `forkd` */
function published(dependencies: Record<string, string> | undefined): object {
  if (!dependencies) return {};
  const entries = Object.entries(dependencies).map(([name, version]) => [name, name === "forkd" ? `npm:${NAMES.sdk}@${version}` : version]);
  return { dependencies: Object.fromEntries(entries) as object };
}

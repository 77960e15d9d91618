// Makes the npm packages in dist/sdk and dist/mcp, or below the folder that is named: plain JavaScript, for any Node from 20 (mcp: 22) on.
// Usage: node scripts/build-npm.ts [FOLDER]

import { execFile } from "node:child_process";
import { chmod, copyFile, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const root = resolve(import.meta.dirname, "..");
const out = resolve(process.argv[2] ?? join(root, "dist"));

const sdkEntry = { types: "./index.d.ts", default: "./index.js" };
await build("sdk", "sdk-ts.md", { exports: { ".": sdkEntry }, sideEffects: false });
await build("mcp", "mcp.md", { bin: { "forkd-mcp": "./bin.js" } });
await chmod(join(out, "mcp", "bin.js"), 0o755);
console.log(`The packages are in ${out}. Publish each with 'npm publish FOLDER'.`);

async function build(name: string, readme: string, more: object): Promise<void> {
  const source = join(root, "packages", name);
  const folder = join(out, name);
  await rm(folder, { recursive: true, force: true });
  await promisify(execFile)(join(root, "node_modules", ".bin", "tsc"), ["-p", join(source, "tsconfig.build.json"), "--outDir", folder]);
  const all = JSON.parse(await readFile(join(source, "package.json"), "utf8")) as Record<string, unknown>;
  const kept = ["name", "version", "description", "license", "type", "dependencies", "engines"].flatMap((key) =>
    key in all ? [[key, all[key]]] : [],
  );
  const manifest = { ...(Object.fromEntries(kept) as object), ...more };
  await writeFile(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
  await copyFile(join(root, "LICENSE"), join(folder, "LICENSE"));
  await copyFile(join(root, "docs", readme), join(folder, "README.md"));
}

// Makes the npm package of the SDK in dist/sdk, or in the folder that is named: plain JavaScript with types, for any Node from 20 on.
// Usage: node scripts/build-sdk.ts [FOLDER]

import { execFile } from "node:child_process";
import { copyFile, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const root = resolve(import.meta.dirname, "..");
const out = resolve(process.argv[2] ?? join(root, "dist", "sdk"));

await rm(out, { recursive: true, force: true });
const tsc = join(root, "node_modules", ".bin", "tsc");
await promisify(execFile)(tsc, ["-p", join(root, "packages", "sdk", "tsconfig.build.json"), "--outDir", out]);
const { name, version, description, license, type, engines } = JSON.parse(
  await readFile(join(root, "packages", "sdk", "package.json"), "utf8"),
) as Record<string, unknown>;
const entry = { types: "./index.d.ts", default: "./index.js" };
const manifest = { name, version, description, license, type, engines, exports: { ".": entry }, sideEffects: false };
await writeFile(join(out, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
await copyFile(join(root, "LICENSE"), join(out, "LICENSE"));
await copyFile(join(root, "docs", "sdk-ts.md"), join(out, "README.md"));
console.log(`The package is in ${out}. Publish it with 'npm publish ${out}'.`);

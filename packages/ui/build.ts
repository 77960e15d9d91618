// Builds the dashboard into dist/ui, or FOLDER: files named after their content, and the page that loads them.
// Usage: node packages/ui/build.ts [FOLDER]

import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { build, type Metafile, type Plugin } from "esbuild";

const SOURCE = join(import.meta.dirname, "src");
const out = resolve(process.argv[2] ?? join(import.meta.dirname, "..", "..", "dist", "ui"));

/** Parts of the SDK that browsers never load */
const withoutNode: Plugin = {
  name: "without-node",
  setup(bundler) {
    bundler.onResolve({ filter: /-node\.ts$/ }, ({ path }) => ({ path, namespace: "without-node" }));
    bundler.onLoad({ filter: /.*/, namespace: "without-node" }, () => ({ contents: "export {};" }));
  },
};

const common = { bundle: true, minify: true, write: true, metafile: true, legalComments: "none", target: "es2023" } as const;
const staging = `${out}.new`;
await rm(staging, { recursive: true, force: true });
const names = { outdir: staging, entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]" };
const [scripts, sheet] = await Promise.all([
  build({
    ...common,
    ...names,
    entryPoints: [join(SOURCE, "main.tsx")],
    format: "esm",
    splitting: true,
    platform: "browser",
    jsx: "automatic",
    jsxImportSource: "preact",
    // styles of libraries are part of the chunk that needs them
    loader: { ".css": "text" },
    plugins: [withoutNode],
  }),
  build({ ...common, ...names, entryPoints: [join(SOURCE, "style.css")] }),
]);
const [main, imported] = entryOf(scripts.metafile);
const [styles] = entryOf(sheet.metafile);
await writeFile(join(staging, "index.html"), page(main, styles, imported));
// replaced as a whole: a running daemon never reads half of it
await mkdir(out, { recursive: true });
await rm(`${out}.old`, { recursive: true, force: true });
await rename(out, `${out}.old`);
await rename(staging, out);
await rm(`${out}.old`, { recursive: true, force: true });

/** Name of the entry, and of the files that it imports at once */
function entryOf({ outputs }: Metafile): [name: string, imported: string[]] {
  const isEntry = ({ entryPoint }: Metafile["outputs"][string]): boolean => /(?:main\.tsx|style\.css)$/.test(entryPoint ?? "");
  const [path = "", entry] = Object.entries(outputs).find(([, output]) => isEntry(output)) ?? [];
  const statics = entry?.imports.filter(({ kind }) => kind === "import-statement") ?? [];
  return [basename(path), statics.map((each) => basename(each.path))];
}

function page(script: string, style: string, imported: readonly string[]): string {
  // without it a browser finds these files only after it has read the script
  const preloads = imported.map((name) => `<link rel="modulepreload" href="/ui/assets/${name}">\n`).join("");
  const icon =
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='%232a9d74' stroke-width='2.4' stroke-linecap='round'%3E%3Cpath d='M7 4v16M7 13c0-5 10-2 10-8'/%3E%3C/svg%3E";
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>forkd</title>
<link rel="icon" href="${icon}">
<link rel="stylesheet" href="/ui/assets/${style}">
${preloads}<script type="module" src="/ui/assets/${script}"></script>
</head>
<body><div id="app"></div><noscript>The dashboard needs JavaScript. The command line does the same: forkd top, forkd tree.</noscript></body>
</html>
`;
}

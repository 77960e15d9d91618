// TypeScript for the Node interpreter: types are removed before the code runs. They are not checked.

import * as modules from "node:module";
import path from "node:path";

/** Folders in which Debian's node-typescript and `npm install -g typescript` put the compiler; the working folder comes first */
const PLACES = ["/usr/share/nodejs/", "/usr/lib/node_modules/", "/usr/local/lib/node_modules/"];
const MISSING = 127;

const compiler = find();
if (!compiler && !modules.stripTypeScriptTypes) {
  process.stderr.write("it has no TypeScript compiler (Debian's package node-typescript, or npm's typescript)\n");
  const exit = process.exit.bind(process);
  exit(MISSING);
}

// node's own type stripping prints a warning about an experimental feature into the output of the first code
if (!compiler) {
  const warn = process.emitWarning.bind(process);
  process.emitWarning = () => undefined;
  modules.stripTypeScriptTypes("1");
  process.emitWarning = warn;
}

export const version = compiler?.version ?? process.versions.node;

/** Throws SyntaxError */
export function transpile(code) {
  return compiler ? transpileWith(compiler, code) : modules.stripTypeScriptTypes(code, { mode: "transform" });
}

function transpileWith(ts, code) {
  const { outputText, diagnostics = [] } = ts.transpileModule(code, {
    reportDiagnostics: true,
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      jsx: ts.JsxEmit?.React,
      // a later eval may use an import that this code does not use
      ...(ts.version.startsWith("4.")
        ? { preserveValueImports: true, importsNotUsedAsValues: ts.ImportsNotUsedAsValues?.Preserve, isolatedModules: true }
        : { verbatimModuleSyntax: true }),
    },
  });
  const problem = diagnostics.find(({ category }) => category === ts.DiagnosticCategory.Error);
  if (!problem) return outputText;
  const error = new SyntaxError(ts.flattenDiagnosticMessageText(problem.messageText, "\n"));
  error.stack = `SyntaxError: ${error.message}\n    at line ${lineOf(code, problem.start ?? 0)}`;
  throw error;
}

function lineOf(code, at) {
  return code.slice(0, at).split("\n").length;
}

function find() {
  for (const place of [path.join(process.cwd(), "eval"), ...PLACES]) {
    try {
      const found = modules.createRequire(place)(PLACES.includes(place) ? path.join(place, "typescript") : "typescript");
      // from version 7 on TypeScript is a program without this function
      if (found.transpileModule) return found;
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  return undefined;
}

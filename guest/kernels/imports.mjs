// Imports of evaluated code: V8's REPL mode has neither import statements nor import().

import { createRequire, isBuiltin } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const BRIDGE = `globalThis[Symbol.for("forkd.kernel")]`;
const TEXT = `'(?:\\\\[^]|[^'\\\\])*'|"(?:\\\\[^]|[^"\\\\])*"`;
const COMMENT = `\\/\\/.*|\\/\\*[^]*?\\*\\/`;
/** The clause between "import" and "from" */
const CLAUSE = `(?:[^\\s'"();=\`/]|\\s|${COMMENT}|${TEXT})+?`;
/** Only at the start of a statement, so that it cannot be part of a regular expression */
const STATEMENT =
  `(?<=(?:^|[;}\\n]|\\*\\/)\\s*)import(?![\\w$])(?:\\s*(?<clause>${CLAUSE})(?<![\\w$])from)?` +
  `\\s*(?<from>${TEXT})(?:\\s*(?:with|assert)\\s*(?<attributes>\\{[^}]*\\}))?[ \\t]*;?`;
const TOKENS = new RegExp(`${COMMENT}|${STATEMENT}|${TEXT}|\`(?:\\\\[^]|[^\`\\\\])*\`|(?<call>(?<![.\\w$])import(?=\\s*\\())`, "g");

/** The same code with calls in place of imports; line numbers are kept */
export function withImports(code) {
  if (!/\bimport\b/.test(code)) return code;
  const statements = [];
  const rest = code.replace(TOKENS, (token, ...found) => {
    const { call, clause, from, attributes } = found.at(-1);
    if (call) return `${BRIDGE}.load`;
    if (!from) return token;
    statements.push(declaration(clause ?? "", from, attributes));
    return token.replaceAll(/[^\n]+/g, "");
  });
  // imports run before all other code, as in a module
  return statements.join("") + rest;
}

function declaration(clause, from, attributes) {
  const options = attributes ? `, { with: ${attributes} }` : "";
  const text = clause.replaceAll(new RegExp(COMMENT, "g"), " ").trim();
  const [, named] = /\{([^]*)\}/.exec(text) ?? [];
  const [, space] = /\*\s*as\s+([^\s,]+)/.exec(text) ?? [];
  const [, main] = /^([^\s{},*]+)/.exec(text) ?? [];
  const names = (named ?? "").split(",").flatMap((item) => {
    const [, name, as = name] = /^\s*("[^]*"|'[^]*'|\S+)(?:\s+as\s+(\S+))?\s*$/.exec(item) ?? [];
    return name ? [[/^["']/.test(name) ? name : JSON.stringify(name), as]] : [];
  });
  if (main) names.push(['"default"', main]);
  const wanted = names.map(([name]) => name).join(", ");
  const taken = names.map(([name, as]) => `${name}: ${as}`).join(", ");
  const module = `await ${BRIDGE}.take(${from}, [${wanted}]${options})`;
  return (space ? `const ${space} = ${module};` : "") + (taken ? `const { ${taken} } = ${module};` : space ? "" : `void (${module});`);
}

/** import() of evaluated code: relative to the working folder, not to this file */
export function load(specifier, options) {
  // Deno, E2B's interpreter, writes packages with "npm:" and a version; the installed version is used
  const name = String(specifier).replace(/^npm:\/?(@[^/@]+\/[^/@]+|[^/@]+)(@[^/]+)?/, "$1");
  if (isBuiltin(name) || /^[a-z][a-z0-9+.-]+:/i.test(name)) return import(name, options);
  const base = path.join(process.cwd(), "eval");
  const file = /^\.{0,2}\//.test(name) ? path.resolve(name) : createRequire(base).resolve(name);
  return import(pathToFileURL(file).href, options);
}

/** The values of an import statement; a missing name is an error, as in modules */
export async function take(specifier, names, options) {
  const module = await load(specifier, options);
  const missing = names.find((name) => !(name in module));
  if (missing !== undefined) throw new SyntaxError(`The requested module '${specifier}' does not provide an export named '${missing}'`);
  return module;
}

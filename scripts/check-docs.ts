// Checks the docs against the code: all error codes are documented, and no others; relative links are valid; each table
// row in SECURITY.md has a test; docs, comments and messages use no word that plain-words.ts refuses.

import { execFile } from "node:child_process";
import { access, readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { ERROR_CODES } from "@forkd/runtime/errors";
import { rowProblems } from "../tests/helpers/security-rows.ts";
import { CODE, codeProblems, wordProblems } from "./plain-words.ts";

const root = resolve(import.meta.dirname, "..");
const problems = [...(await checkErrorCodes()), ...(await checkLinks()), ...(await checkSecurityRows()), ...(await checkWords())];
for (const problem of problems) console.error(problem);
console.log(problems.length === 0 ? "docs: ok" : `docs: ${problems.length} problems`);
process.exitCode = problems.length === 0 ? 0 : 1;

async function checkErrorCodes(): Promise<string[]> {
  const text = await readFile(join(root, "docs", "errors.md"), "utf8");
  const documented = new Set([...text.matchAll(/^### ([A-Z_]+)$/gm)].map((match) => match[1] ?? ""));
  const known = new Set<string>(Object.keys(ERROR_CODES));
  return [
    ...[...known].filter((code) => !documented.has(code)).map((code) => `docs/errors.md: ${code} is not documented`),
    ...[...documented].filter((code) => !known.has(code)).map((code) => `docs/errors.md: ${code} is not in errors.ts`),
  ];
}

async function checkLinks(): Promise<string[]> {
  const problems: string[] = [];
  for (const file of await markdownFiles()) {
    const text = withoutCode(await readFile(join(root, file), "utf8"));
    for (const [, target = ""] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^([a-z]+:|#)/.test(target)) continue;
      const path = resolve(root, dirname(file), decodeURIComponent(target.replace(/[#?].*$/, "")));
      const isThere = await access(path).then(
        () => true,
        () => false,
      );
      if (!isThere) problems.push(`${file}: link to ${target} leads nowhere`);
    }
  }
  return problems;
}

async function checkSecurityRows(): Promise<string[]> {
  return rowProblems(await readFile(join(root, "SECURITY.md"), "utf8")).map((problem) => `SECURITY.md: ${problem}`);
}

async function checkWords(): Promise<string[]> {
  const problems: string[] = [];
  for (const file of await markdownFiles()) {
    const found = wordProblems(await readFile(join(root, file), "utf8"));
    problems.push(...found.map((problem) => `${file}: ${problem}`));
  }
  const { stdout } = await promisify(execFile)("git", ["ls-files", "-z", "--", ":!vendor"], { cwd: root });
  for (const file of stdout.split("\0").filter((name) => CODE.test(name))) {
    const found = codeProblems(file, await readFile(join(root, file), "utf8"));
    problems.push(...found.map((problem) => `${file}: ${problem}`));
  }
  return problems;
}

async function markdownFiles(): Promise<string[]> {
  const { stdout } = await promisify(execFile)(
    "find",
    [
      ".",
      ...["node_modules", "target", "dist", "vendor", ".git"].flatMap((name) => ["-name", name, "-prune", "-o"]),
      "-name",
      "*.md",
      "-print",
    ],
    { cwd: root },
  );
  return stdout.split("\n").filter(Boolean).sort();
}

function withoutCode(text: string): string {
  return text.replace(/^(```|~~~)[\s\S]*?^\1/gm, "").replace(/`[^`\n]*`/g, "");
}

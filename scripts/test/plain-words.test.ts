// The check for refused words in docs and code.

import assert from "node:assert/strict";
import { test } from "node:test";
import { codeProblems, wordProblems } from "../plain-words.ts";

/** Refused words are written in parts: the check reads this file too */
const GOES_ON = ["goes", "on"].join(" ");
const NO_MORE = ["is", "no more"].join(" ");
const CONTINUES = `use "continues" in place of "${GOES_ON}"`;

test("a forbidden word is reported with its line and a suggestion", () => {
  assert.deepEqual(wordProblems("# Title\n\nNobody.\nmend"), [
    'line 3: use the name of the user, client or component in place of "Nobody"',
    'line 4: use "fix" in place of "mend"',
  ]);
  assert.deepEqual(wordProblems(`A sandbox that ${NO_MORE}.`), [`line 1: use "has ended" or "was removed" in place of "${NO_MORE}"`]);
});

test("words that contain a forbidden word pass", () => {
  assert.deepEqual(wordProblems("We recommend an amended text. It is no more than a test."), []);
});

test("code in Markdown is not checked", () => {
  assert.deepEqual(wordProblems("```sh\nnobody\n```\n`nobody`"), []);
});

test("only the unreleased section of a changelog is checked", () => {
  const changelog = "## [Unreleased]\n\n- mend A\n\n## [0.1.0]\n\n- mend B\n";
  assert.deepEqual(wordProblems(changelog), ['line 3: use "fix" in place of "mend"']);
});

test("comments are checked in every language of the project", () => {
  for (const [path, source] of [
    ["a.rs", "fn a() {}\n/// It X.\n"],
    ["a.ts", "const a = 1;\nconst b = 2; // it X\n"],
    ["a.mjs", "/**\n * it X\n */\n"],
    ["a.c", "int a;\n/* it X */ int b;\n"],
    ["a.py", 'def a():\n    """It X."""\n'],
    ["a.py", '"""\nIt X.\n"""\n'],
    ["a.sh", "a\nb # it X\n"],
  ] as const)
    assert.deepEqual(codeProblems(path, source.replace("X", GOES_ON)), [`line 2: ${CONTINUES}`], source);
});

test("strings of several words and names of functions are checked", () => {
  const names = GOES_ON.replace(" ", "_");
  assert.deepEqual(codeProblems("a.ts", `it("a source ${GOES_ON}", run);\n`), [`line 1: ${CONTINUES}`]);
  assert.deepEqual(codeProblems("a.rs", `#[test]\nfn a_source_${names}() {}\n`), [`line 2: ${CONTINUES}`]);
  assert.deepEqual(codeProblems("a.py", `def test_it_${names}(self):\n`), [`line 1: ${CONTINUES}`]);
});

test("identifiers and single words are not checked", () => {
  assert.deepEqual(codeProblems("a.ts", 'const told = "nobody"; // the user\n'), []);
  assert.deepEqual(codeProblems("a.ts", 'run("forkd sh --user nobody web");\n'), []);
});

// Positions in the errors of a recipe.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseRecipe } from "../../src/recipe/parse.ts";

const HEAD = "name: x\ndescription: A try.\nimage: { packages: [python3] }\n";

/** The lines of the error, without the file name */
function problemsOf(text: string, set: Record<string, string> = {}): string[] {
  try {
    parseRecipe(text, "r.yaml", set);
  } catch (error) {
    const { code, message } = error as Error & { code: string };
    assert.equal(code, "RECIPE_INVALID");
    return message.split("\n").map((line) => line.replace(/^r\.yaml:/, ""));
  }
  return [];
}

describe("an invalid recipe", () => {
  const cases: [what: string, text: string, problems: string[]][] = [
    ["no YAML", "name: [x\n", ["2:1: Flow sequence in block collection must be sufficiently indented and end with a ]"]],
    ["nothing", "", ["1:1: must be a mapping with name, description and image"]],
    ["a list", "- a\n", ["1:1: must be a mapping with name, description and image"]],
    ["a key twice", `${HEAD}name: y\n`, ["4:1: Map keys must be unique"]],
    [
      "missing fields",
      "name: x\n",
      ["1:1: description: is missing", "1:1: image: must be a mapping with one of packages, oci, tar, recipe, snapshot"],
    ],
    ["an unknown field", `${HEAD}stepps: []\n`, ["4:1: there is no field stepps"]],
    ["an unknown field of a step", `${HEAD}steps:\n  - exec: "true"\n    usr: me\n`, ["6:5: steps.0: there is no field usr here"]],
    [
      "two kinds of step",
      `${HEAD}steps:\n  - exec: "true"\n    start: [x]\n`,
      ["5:5: steps.0: must have exactly one of exec, eval, file, start; it has exec and start"],
    ],
    ["no kind of check", `${HEAD}ready:\n  - prt: 1\n`, ["5:5: ready.0: must have exactly one of exec, port, http, log, eval"]],
    ["a number among words", `${HEAD}steps:\n  - exec: [sleep, 5]\n`, ["5:19: steps.0.exec.1: must be text: put it in quotes"]],
    ["an empty command", `${HEAD}steps:\n  - exec: []\n`, ["5:5: steps.0.exec: must name a program"]],
    ["a relative path", `${HEAD}files:\n  - { from: a, to: b }\n`, ["5:16: files.0.to: must be an absolute path of the guest"]],
    [
      "a mode without quotes",
      `${HEAD}files:\n  - { from: a, to: /b, mode: 0644 }\n`,
      ["5:24: files.0.mode: must be text: put it in quotes"],
    ],
    ["a name of the environment", `${HEAD}env: { A-B: x }\n`, ["4:8: env.A-B: must be a name of letters, digits and '_'"]],
    ["a boolean as a command", `${HEAD}steps:\n  - exec: true\n`, ["5:5: steps.0.exec: must be a list of words, or a line for the shell"]],
    ["no port", `${HEAD}ready:\n  - port: 70000\n`, ["5:5: ready.0.port: must be a port, 1 to 65535"]],
    [
      "a bad pattern",
      `${HEAD}tests:\n  - exec: "true"\n    expect: { stdout: "(" }\n`,
      ["6:15: tests.0.expect.stdout: must be a regular expression"],
    ],
    ["an invalid network", `${HEAD}network: wide\n`, ["4:1: network: must be none, open, or { allow: [RULE, …] }"]],
    ["a language", `${HEAD}kernels: [perl]\n`, ["4:11: kernels.0: must be python, node, bash or a mapping with a language"]],
    ["eval without a kernel", `${HEAD}steps:\n  - eval: "1"\n`, ["5:5: steps.0.eval: needs a warm interpreter: add kernels: [python]"]],
    [
      "a log of an unknown process",
      `${HEAD}ready:\n  - log: { process: db, line: x }\n`,
      ["5:12: ready.0.log.process: must be the tag of a start step; there is none with the tag db"],
    ],
    [
      "a delta with a machine",
      "name: x\ndescription: y\nimage: { recipe: z }\nmachine: { vcpus: 2 }\n",
      ["4:1: machine: is that of the recipe it begins with: leave it out"],
    ],
    [
      "an unknown variable",
      `${HEAD}vars: { rows: 1 }\nsteps:\n  - exec: "seq \${row}"\n`,
      ["6:5: steps.0.exec: there is no variable row (there are rows); add it to vars, or write $${row} for the text itself"],
    ],
    ["a variable of a strange name", `${HEAD}vars: { Rows: 1 }\n`, ["4:9: vars.Rows: must be lower-case letters, digits and '_'"]],
  ];
  for (const [what, text, problems] of cases)
    it(`is reported with the position: ${what}`, () => assert.deepEqual(problemsOf(text), problems));

  it("is reported with up to ten problems", () => {
    const many = `${HEAD}${Array.from({ length: 12 }, (_, index) => `f${index}: 1\n`).join("")}`;
    const problems = problemsOf(many);
    assert.equal(problems.length, 11);
    assert.equal(problems.at(-1), "… and 2 more");
  });

  it("is reported if a set variable does not exist", () => {
    assert.deepEqual(problemsOf(HEAD, { rows: "1" }), ["1:1: vars: there is no variable rows to set"]);
  });
});

describe("variables", () => {
  const text = `${HEAD}vars: { port: 80, who: me }
env: { WHO: "\${who}" }
steps:
  - exec: ["echo", "\${who}@\${port}", "$\${who}", "\${HOME}"]
ready:
  - port: \${port}
`;

  it("are replaced in any text, also where a number is expected", () => {
    const { recipe } = parseRecipe(text, "r.yaml");
    assert.deepEqual(recipe.env, { WHO: "me" });
    const [step] = recipe.steps;
    assert.ok(step?.kind === "exec");
    assert.deepEqual(step.exec, ["echo", "me@80", "${who}", "${HOME}"]);
    const [check] = recipe.ready;
    assert.ok(check?.kind === "port");
    assert.equal(check.port, 80);
  });

  it("can be set", () => {
    const { recipe } = parseRecipe(text, "r.yaml", { port: "8080" });
    const [check] = recipe.ready;
    assert.ok(check?.kind === "port");
    assert.equal(check.port, 8080);
    assert.deepEqual(recipe.vars, { port: "8080", who: "me" });
  });

  it("are text, and never parsed as parts of a recipe", () => {
    const { recipe } = parseRecipe(`${HEAD}vars: { a: x }\nsteps:\n  - exec: "echo \${a}"\n`, "r.yaml", { a: '"\nuser: root\n${a}' });
    const [step] = recipe.steps;
    assert.ok(step?.kind === "exec");
    assert.deepEqual(step.exec, ["/bin/sh", "-c", 'echo "\nuser: root\n${a}']);
    assert.equal(recipe.user, undefined);
  });
});

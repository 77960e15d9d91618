// Cases for recipes: list, check, build with and without changes, and errors.

import { fails, gives, including, REST_AND_SDK, type Case, type Context } from "./case.ts";

const HEAD = (name: string): string => `name: ${name}\ndescription: A contract.\n`;

/** A recipe for a delta of the snapshot `python`, which every driver has */
function source(c: Context, step = "echo ${word} > /word"): string {
  return [
    `${HEAD(c.name("recipe"))}image: { snapshot: python }`,
    "vars: { word: hello }",
    `steps: [{ name: a word, exec: "${step}" }]`,
    'tests: [{ name: it is there, exec: [cat, /word], expect: { stdout: "^${word}$" } }]',
    "",
  ].join("\n");
}

const CHECK_NOT: Case["not"] = REST_AND_SDK("`build` and `recipes FOLDER` use it");

export const recipeCases: Case[] = [
  {
    what: "the recipes that come with forkd",
    route: "listRecipes",
    expect: gives(including({ name: "python-numpy", tag: "python-numpy" }, { name: "e2b-base", tag: "base" })),
  },
  {
    what: "a recipe is checked, and the files that it needs are listed",
    route: "checkRecipe",
    args: () => ({
      body: {
        source: `${HEAD("x")}vars: { a: 1 }\nimage: { recipe: nodejs }\nfiles: [{ from: ./f, to: /f }]\n`,
        folder: "x",
        set: { a: "2" },
      },
    }),
    expect: gives({ name: "x", tag: "x", variables: { a: "2" }, files: ["./f"], base: "nodejs", registry_reference: null }),
    not: CHECK_NOT,
  },
  {
    what: "a recipe that is not valid, with the place",
    route: "checkRecipe",
    args: () => ({ body: { source: `${HEAD("x")}image: { packages: [] }\nstepps: []\n` } }),
    expect: fails("RECIPE_INVALID", {
      message: () => /^recipe\.yaml:4:1: there is no field stepps/,
      details: { problems: [{ file: "recipe.yaml", line: 4, column: 1, message: "there is no field stepps" }] },
    }),
    not: CHECK_NOT,
  },
  {
    what: "a recipe is built and tested",
    route: "buildRecipe",
    args: (c) => ({ query: { tag: c.name("built"), set: ["word=hi"], test: true }, body: { source: source(c) } }),
    expect: (c) =>
      gives({
        tag: c.name("built"),
        unchanged: false,
        steps: [{ title: "[1/1] a word", cached: false }, { title: "Test: it is there" }],
        tests: [{ name: "it is there" }],
        snapshot: { tag: c.name("built"), parent_tag: "python", status: "ready" },
      }),
    save: "built",
  },
  {
    what: "nothing changed, so nothing is built",
    route: "buildRecipe",
    args: (c) => ({ query: { tag: c.name("built"), set: ["word=hi"] }, body: { source: source(c) } }),
    expect: (c) => gives({ unchanged: true, snapshot: { id: c.at("built.snapshot.id") }, tests: [] }),
  },
  {
    what: "without the cache everything is built again",
    route: "buildRecipe",
    args: (c) => ({ query: { tag: c.name("built"), set: ["word=hi"], no_cache: true }, body: { source: source(c) } }),
    expect: gives({ unchanged: false, steps: [{ title: "[1/1] a word", cached: false }] }),
  },
  {
    what: "a step that fails, with the end of its output",
    route: "buildRecipe",
    args: (c) => ({ query: { tag: c.name("built") }, body: { source: source(c, "echo why; exit 3") } }),
    expect: fails("BUILD_FAILED", { message: () => /“a word” failed: it ended with exit code 3/, details: { output: "why\n" } }),
  },
  {
    what: "a test that fails",
    route: "buildRecipe",
    args: (c) => ({ query: { tag: c.name("built"), test: true }, body: { source: source(c, "echo other > /word") } }),
    expect: fails("TESTS_FAILED", { message: () => /1 of 1 tests/ }),
  },
  {
    what: "files of the daemon's machine cannot be named",
    route: "buildRecipe",
    args: (c) => ({
      query: {},
      body: { source: `${HEAD(c.name("host"))}image: { snapshot: python }\nfiles: [{ from: /etc/passwd, to: /x }]\n` },
    }),
    expect: fails("RECIPE_INVALID", { message: () => /files\.0\.from: must be a relative path/ }),
  },
  {
    what: "a file that was not sent",
    route: "buildRecipe",
    args: (c) => ({
      query: {},
      body: { source: `${HEAD(c.name("none"))}image: { snapshot: python }\nfiles: [{ from: ./none, to: /x }]\n` },
    }),
    expect: fails("RECIPE_INVALID", { message: () => /files\.0\.from: there is no file/ }),
  },
  ...(["admin", "exec"] as const).map((scope): Case => ({
    what: `a token for builds, with scope ${scope}`,
    route: "createToken",
    args: (c) => ({ body: { name: c.name(`build-${scope}`), scope } }),
    expect: gives({ scope }, 201),
    save: `build-${scope}`,
  })),
  {
    what: "commands on the daemon's machine are not for the network",
    route: "buildRecipe",
    args: (c) => ({
      token: c.at("build-admin.token"),
      query: {},
      body: { source: `${HEAD(c.name("run"))}image: { packages: [hello], run: ["true"] }\n` },
    }),
    expect: fails("FORBIDDEN", { message: () => /Cannot use run/ }),
  },
  {
    what: "a token without the scope admin builds nothing",
    route: "buildRecipe",
    args: (c) => ({ token: c.at("build-exec.token"), query: {}, body: { source: source(c) } }),
    expect: fails("FORBIDDEN"),
  },
  ...["admin", "exec"].map((scope): Case => ({
    what: `the token with scope ${scope} is removed`,
    route: "deleteToken",
    args: (c) => ({ params: { name: c.name(`build-${scope}`) } }),
    expect: gives(null),
  })),
  {
    what: "a recipe that does not exist",
    route: "buildRecipe",
    args: () => ({ query: { recipe: "pyton-numpy" } }),
    expect: fails("NOT_FOUND", { details: { kind: "recipe", nearest: "python-numpy" } }),
  },
  {
    what: "a snapshot that was built is removed",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("built") } }),
    expect: gives(null),
  },
  {
    what: "the layers of its build are removed with it",
    route: "listSnapshots",
    args: (c) => ({ query: { metadata: [`forkd.build=${c.name("built")}`] } }),
    expect: gives([]),
  },
];

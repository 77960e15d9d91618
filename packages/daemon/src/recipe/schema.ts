// Schema of the recipe format: validation, types and messages.

import { posix } from "node:path";
import * as z from "zod";
import { NAME } from "@forkd/runtime/util/name";
import { language as languageSchema } from "../api/exec.ts";
import { packageName } from "../api/image.ts";
import { setNetwork } from "../api/network.ts";

const LANGUAGES = languageSchema.options;
/** Default time limit of a step: installing packages is slow under emulation */
const STEP_SECS = 600;
const CHECK_SECS = 60;
const TEST_SECS = 60;
const MAX_SECS = 24 * 3600;
const MAX_WORDS = 4096;
/** Limit of steps, files, checks and tests, each */
const MAX_ITEMS = 1000;

const text = z.string({ error: (issue) => (issue.input === undefined ? "is missing" : "must be text: put it in quotes") });
const word = text.min(1, "must not be empty");
const name = word.max(64).regex(NAME, "must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'");
const absolute = word.startsWith("/", "must be an absolute path of the guest");
const mode = text.regex(/^[0-7]{3,4}$/, 'must be octal in quotes, such as "0644"');
const owner = word.regex(/^[^:\s]+(:[^:\s]+)?$/, 'must be "USER" or "USER:GROUP"');
const language = z.enum(LANGUAGES, `must be one of ${LANGUAGES.join(", ")}`);
const env = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be a name of letters, digits and '_'"), text)
  .refine((entries) => Object.keys(entries).length <= 256, "must have at most 256 entries");
const cpu = word.regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "must be baseline, host or a CPU model of the engine");
const pattern = word.refine((source) => isPattern(source), "must be a regular expression");

/** Accepts numbers as text, because variables are text */
const number = z
  .union(
    [
      z.number(),
      z
        .string()
        .regex(/^\d+(\.\d+)?$/)
        .transform(Number),
    ],
    "must be a number",
  )
  .pipe(z.number().positive("must be above 0"));
const secs = number.pipe(z.number().max(MAX_SECS, `must be at most ${MAX_SECS}`));
const whole = number.pipe(z.int("must be a whole number"));
const port = whole.pipe(z.int().max(65_535, "must be a port, 1 to 65535"));

/** A list is a program with arguments; a string is a command line for the guest's /bin/sh */
const command = z
  .union([word, z.array(word).min(1, "must name a program").max(MAX_WORDS)], "must be a list of words, or a line for the shell")
  .transform((given) => (typeof given === "string" ? ["/bin/sh", "-c", given] : given));

/** The archive contains recipe folders side by side, so a path can reach at most into a sibling folder */
const contextPath = word.refine(
  (path) => !posix.isAbsolute(path) && !/^\.\.(\/|$)/.test(posix.join("recipe", path)),
  "must be a relative path to a file in the recipe's folder or beside that folder",
);

const place = { user: word.optional(), workdir: absolute.optional(), env: env.optional() };
const stepFields = { name: word.optional(), once: z.boolean("must be true or false").optional() };
const limit = { timeout_secs: secs.default(STEP_SECS) };

const step = oneOf({
  exec: { ...stepFields, ...place, ...limit, exec: command },
  eval: { ...stepFields, ...limit, eval: word, language: language.optional() },
  file: { ...stepFields, file: z.strictObject({ to: absolute, content: text, mode: mode.optional(), owner: owner.optional() }) },
  start: { ...stepFields, ...place, start: command, tag: name.optional() },
});

const patience = { timeout_secs: secs.default(CHECK_SECS) };
const check = oneOf({
  exec: { ...place, ...patience, exec: command },
  port: { ...patience, port },
  http: {
    ...patience,
    http: z.strictObject({ port, path: word.startsWith("/", "must begin with /").default("/"), status: whole.default(200) }),
  },
  log: { ...patience, log: z.strictObject({ process: name, line: pattern }) },
  eval: { ...patience, eval: word, language: language.optional() },
});

const expectOutput = { stdout: pattern.optional(), stderr: pattern.optional() };
const testFields = { name: word.optional(), timeout_secs: secs.default(TEST_SECS) };
const test = oneOf({
  exec: {
    ...testFields,
    ...place,
    exec: command,
    stdin: text.optional(),
    expect: z.strictObject({ ...expectOutput, exit_code: z.int("must be an exit code").default(0) }).prefault({}),
  },
  eval: {
    ...testFields,
    eval: word,
    language: language.optional(),
    expect: z.strictObject({ ...expectOutput, value: z.unknown().optional() }).prefault({}),
  },
});

const image = oneOf({
  packages: {
    packages: z.array(packageName, "must be a list of packages").max(MAX_ITEMS),
    run: z.array(word, "must be a list of commands").max(64).optional(),
  },
  oci: { oci: word.max(512) },
  tar: { tar: contextPath },
  recipe: { recipe: name },
  snapshot: { snapshot: name },
});

const kernel = z
  .union(
    [language, z.strictObject({ language, cwd: absolute.optional(), code: word.optional() })],
    "must be python, node, bash or a mapping with a language",
  )
  .transform((given) => (typeof given === "string" ? { language: given } : given));

const network = z
  .union(
    [
      z.enum(["none", "open"]).transform((mode) => ({ mode })),
      z.strictObject({ allow: z.array(word).min(1) }).transform(({ allow }) => ({ mode: "allow" as const, allow })),
    ],
    "must be none, open, or { allow: [RULE, …] }",
  )
  .transform((policy): z.input<typeof setNetwork> => policy)
  .pipe(setNetwork)
  .default({ mode: "none" });

export const recipeSchema = z
  .strictObject(
    {
      name,
      description: word.max(1024, "must have at most 1024 characters"),
      tag: name.optional(),
      image,
      machine: z
        .strictObject({
          memory_mib: whole.optional(),
          vcpus: whole.optional(),
          disk_mib: whole.optional(),
          cpu: cpu.optional(),
          hugepages: z.boolean("must be true or false").optional(),
        })
        .optional(),
      kernels: z.array(kernel, "must be a list of languages").max(LANGUAGES.length).optional(),
      vars: z.record(z.string(), z.string()).default({}),
      env: env.optional(),
      user: word.optional(),
      workdir: absolute.optional(),
      network,
      files: list(z.strictObject({ from: contextPath, to: absolute, mode: mode.optional(), owner: owner.optional() }), "files"),
      steps: list(step, "steps"),
      ready: list(check, "checks"),
      health: list(check, "checks"),
      tests: list(test, "tests"),
    },
    "must be a mapping with name, description and image",
  )
  .superRefine((recipe, context) => {
    const complain = (path: (string | number)[], message: string): void => context.addIssue({ code: "custom", path, message });
    const isDelta = recipe.image.kind === "recipe" || recipe.image.kind === "snapshot";
    if (isDelta && recipe.machine) complain(["machine"], `is that of the ${recipe.image.kind} it begins with: leave it out`);
    if (isDelta && recipe.kernels) complain(["kernels"], `are those of the ${recipe.image.kind} it begins with: leave them out`);
    const started = new Set(recipe.steps.flatMap((step) => (step.kind === "start" && step.tag !== undefined ? [step.tag] : [])));
    for (const part of ["ready", "health"] as const)
      for (const [index, check] of recipe[part].entries())
        if (check.kind === "log" && !isDelta && !started.has(check.log.process))
          complain([part, index, "log", "process"], `must be the tag of a start step; there is none with the tag ${check.log.process}`);
    if (isDelta) return;
    const warm = new Set((recipe.kernels ?? []).map(({ language }) => language));
    for (const part of ["steps", "ready", "health", "tests"] as const)
      for (const [index, each] of recipe[part].entries())
        if (each.kind === "eval" && (each.language === undefined ? warm.size === 0 : !warm.has(each.language)))
          complain([part, index, "eval"], `needs a warm interpreter: add kernels: [${each.language ?? "python"}]`);
  });

export type Recipe = z.output<typeof recipeSchema>;
export type Step = Recipe["steps"][number];
export type Check = Recipe["ready"][number];
export type RecipeTest = Recipe["tests"][number];
export type CopiedFile = Recipe["files"][number];

type Shape = Record<string, z.ZodType>;
type Kinds = Record<string, Shape>;
type OneOf<K extends Kinds> = { [N in keyof K & string]: { kind: N } & z.output<z.ZodObject<K[N], z.core.$strict>> }[keyof K & string];

/** An object of exactly one kind. One field names the kind, so only the problems of that kind are reported */
function oneOf<K extends Kinds>(kinds: K): z.ZodType<OneOf<K>> {
  const names = Object.keys(kinds);
  const schemas = new Map(names.map((kind) => [kind, z.strictObject(kinds[kind] ?? {})]));
  return z.unknown().transform((value, context) => {
    const refuse = (message: string): never => {
      context.addIssue({ code: "custom", message });
      return z.NEVER;
    };
    if (typeof value !== "object" || value === null || Array.isArray(value))
      return refuse(`must be a mapping with one of ${names.join(", ")}`);
    const given = names.filter((kind) => Object.hasOwn(value, kind));
    const [kind = ""] = given;
    if (given.length !== 1)
      return refuse(`must have exactly one of ${names.join(", ")}${given.length > 1 ? `; it has ${given.join(" and ")}` : ""}`);
    const parsed = schemas.get(kind)?.safeParse(value);
    if (parsed?.success) return { kind, ...parsed.data } as OneOf<K>;
    for (const issue of parsed?.error.issues ?? []) context.issues.push({ ...issue, path: [...issue.path], input: value } as never);
    return z.NEVER;
  });
}

function list<T extends z.ZodType>(item: T, what: string): z.ZodDefault<z.ZodArray<T>> {
  return z
    .array(item, `must be a list of ${what}`)
    .max(MAX_ITEMS)
    .default([] as never);
}

function isPattern(source: string): boolean {
  try {
    return new RegExp(source, "mu") instanceof RegExp;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

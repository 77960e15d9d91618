// Generator of the TypeScript SDK's low-level client: one method per route, and the types of their options.

import { camel, pascal, PREFIX, resolve, sentencesOf, type Field, type Method } from "./methods.ts";
import { fill } from "./text.ts";
import { typeOf, type Schema } from "./types.ts";

type Components = { [name: string]: Schema };

const WIDTH = 140;

/** Components with another name as options */
const OPTION_NAMES: { readonly [component: string]: string } = { SetNetwork: "NetworkOptions" };

/** Types of options, in camelCase */
export function printOptions(methods: Method[], components: Components): string {
  const printed = new Map<string, string>();
  const refer = (component: string): string => {
    const schema = components[component] ?? {};
    if (schema.type === "string" && schema.enum === undefined) return "string";
    if (!hasSnakeCase(schema)) return `wire.${component}`;
    const name = optionsOf(component);
    if (!printed.has(name)) printed.set(name, `${comment(schema, "")}export type ${name} = ${record(fieldsOf(schema), refer)};\n`);
    return name;
  };
  for (const method of methods) {
    const { forms } = method.client;
    for (const [at, name] of (forms?.of ?? []).entries()) {
      const form = resolve({ $ref: PREFIX + method.body }, components).anyOf?.[at] ?? {};
      printed.set(name, `export type ${name} = ${record(fieldsOf(form), refer)};\n`);
    }
    if (forms !== undefined) printed.set(forms.type, `export type ${forms.type} = ${forms.of.join(" | ")};\n`);
    else if (method.client.body !== undefined) typeOf({ $ref: PREFIX + method.body }, "", refer);
    const fields = optionFields(method);
    const name = optionsType(method);
    if (fields.length === 0 || printed.has(name)) continue;
    printed.set(name, `export type ${name} = ${base(method)} & ${record(fields, refer, method)};\n`);
  }
  const head = `import type { CallOptions, OnceOptions, PageOptions, ProgressOptions } from "./call-options.ts";
import type * as wire from "./schema.gen.ts";
`;
  return `${head}\n${[...printed.values()].join("\n")}`;
}

/** The class with a method per route */
export function printController(methods: Method[], components: Components): string {
  const own = methods.filter((method) => method.client.byHand !== true);
  const body = own.map((method) => printMethod(method, components)).join("\n");
  const options = [...new Set(body.match(/\b(?!wire\.)[A-Z]\w+(?=Options\b|Source\b)\w+/g) ?? [])];
  const common = options
    .filter((name) => COMMON.has(name))
    .concat("Page", "FileContent")
    .sort();
  const generated = options.filter((name) => !COMMON.has(name)).sort();
  const helpers = ["pairs", "path", "split", "toWire", "withKey"].filter((name) => new RegExp(`\\b${name}[(\`]`).test(body));
  return `import { forkTimeoutMs, guestTimeoutMs } from "./deadline.ts";
import { ${helpers.join(", ")} } from "./wire.ts";
import type { ${common.join(", ")} } from "./call-options.ts";
import type { Client } from "./client.ts";
import type {
${generated.map((name) => `  ${name},\n`).join("")}} from "./options.gen.ts";
import type * as wire from "./schema.gen.ts";

/** The methods of {@link Controller} that are one request and its answer */
export abstract class GeneratedController {
  /** @internal */
  protected abstract readonly client: Client;

${body}}
`;
}

const COMMON = new Set(["CallOptions", "OnceOptions", "PageOptions", "ProgressOptions"]);

function printMethod(method: Method, components: Components): string {
  const { client, answer } = method;
  const type = resultType(method);
  const isStream = answer.kind === "bytes";
  const given = signature(method, components);
  const head = isStream ? `  ${method.name}(${given}): ${type} {` : `  async ${method.name}(${given}): Promise<${type}> {`;
  const lines: string[] = [];
  const fields = optionFields(method);
  const hasFields = fields.length > 0 || (method.hasProgress && client.body === undefined);
  if (hasFields) lines.push("const { fields, call } = split(opts);");
  else if (method.hasProgress) lines.push("const { call } = split(opts);");
  const call = callOf(method, hasFields || method.hasProgress ? "call" : "opts");
  const json = jsonOf(method, components, hasFields);
  if (json !== undefined) lines.push(`const json: wire.${method.body} = ${json};`);
  const path = pathOf(method);
  const request = isStream ? "stream" : answer.kind === "page" ? "page" : method.hasProgress ? "progress" : answer.kind;
  const verb = answer.kind === "page" ? [] : [`"${method.verb}"`];
  const listener = method.hasProgress ? ["opts.onProgress"] : [];
  const sent = `this.client.${request}(${[...verb, path, call, ...listener].join(", ")})`;
  const start = answer.kind === "empty" ? "await " : isStream ? "return " : "return await ";
  if (answer.kind === "json" && answer.field !== undefined) {
    const whole = typeOf(answer.schema, "", (component) => `wire.${component}`);
    lines.push(`const answer = await ${sent.replace(`.${request}(`, `.${request}<${whole}>(`)};`, `return answer.${answer.field};`);
  } else lines.push(`${start}${sent};`);
  return `${documentation(method)}${wrapped(head)}\n${lines.map((line) => `${wrapped(`    ${line}`)}\n`).join("")}  }\n`;
}

function signature(method: Method, components: Components): string {
  const { client } = method;
  const inBody = (field: Field): boolean => client.body !== undefined && field.place === "body";
  const refer = referIn(components);
  const args = method.args.filter((field) => !inBody(field)).map((field) => `${camel(field.arg)}: ${argumentType(method, field, refer)}`);
  if (client.body !== undefined) args.push(`${client.body}: ${bodyType(method)}`);
  if (method.upload !== undefined) args.push(`${camel(method.upload)}: FileContent`);
  args.push(`opts: ${optionsType(method)}${client.needsOptions === true ? "" : " = {}"}`);
  return args.join(", ");
}

function argumentType({ body }: Method, field: Field, refer: (component: string) => string): string {
  if (field.place === "path") return paramType(field);
  const isLong = (field.schema.enum?.length ?? 0) > 10;
  return isLong && field.place === "body" ? `wire.${body}["${field.wire}"]` : typeOf(field.schema, "  ", refer);
}

function paramType({ schema }: Field): string {
  return schema.type === "integer" || schema.type === "number" ? "number" : "string";
}

function pathOf({ path, args }: Method): string {
  const params = args.filter((field) => field.place === "path");
  if (params.length === 0) return `"${path}"`;
  let at = 0;
  const text = path.replaceAll("{}", () => {
    const field = params[at++] as Field;
    return `\${${paramType(field) === "number" ? `String(${camel(field.arg)})` : camel(field.arg)}}`;
  });
  return `path\`${text}\``;
}

/** Options of the call and constants of the route */
function callOf(method: Method, source: "call" | "opts"): string {
  const { client, answers } = method;
  const parts: string[] = [client.key === "made" ? `...withKey(${source})` : `...${source}`];
  if (typeof client.seconds === "number") parts.push(`timeoutMs: ${source}.timeoutMs ?? ${numeral(client.seconds * 1000)}`);
  if (client.seconds === "guest") parts.push("timeoutMs: guestTimeoutMs(opts)");
  if (client.seconds === "children") parts.push("timeoutMs: opts.timeoutMs ?? forkTimeoutMs(this.client.timeoutMs, opts.n)");
  const query = queryOf(method);
  if (query !== undefined) parts.push(query === "fields" ? "query: fields" : `query: ${query}`);
  if (method.body !== undefined) parts.push("json");
  if (method.upload !== undefined) parts.push(camel(method.upload) === "content" ? "content" : `content: ${camel(method.upload)}`);
  if (typeof client.repeatable === "boolean") parts.push(`canRepeat: ${client.repeatable}`);
  else if (client.repeatable !== undefined) parts.push(`canRepeat: opts.${camel(client.repeatable.unless)} !== true`);
  if (answers.length > 0) parts.push(`answers: [${answers.join(", ")}]`);
  return parts.length === 1 && parts[0] === `...${source}` ? source : `{ ${parts.join(", ")} }`;
}

function queryOf(method: Method): string | undefined {
  const args = method.args.filter((field) => field.place === "query").map(pair);
  const options = method.options.filter((field) => field.place === "query");
  if (args.length + options.length === 0) return undefined;
  const converted = options.flatMap((field) => {
    const given = `opts.${camel(field.arg)}`;
    if (method.client.takes?.[field.wire] === "pairs") return [`${field.wire}: pairs(${given})`];
    const item = method.client.lists?.[field.wire];
    if (item === undefined) return [];
    return [
      item === "string" ? `${field.wire}: ${given}?.join(",")` : `${field.wire}: Array.isArray(${given}) ? ${given}.join(",") : ${given}`,
    ];
  });
  const all = [...args, ...(options.length > 0 ? ["...fields"] : []), ...converted];
  return all.length === 1 && all[0] === "...fields" ? "fields" : `{ ${all.join(", ")} }`;
}

function jsonOf(method: Method, components: Components, hasFields: boolean): string | undefined {
  const { client, body } = method;
  if (body === undefined) return undefined;
  if (client.body !== undefined) return hasSnakeCase(components[body] ?? {}) ? `toWire(${client.body})` : client.body;
  const args = method.args.filter((field) => field.place === "body").map(pair);
  const nested = method.options.flatMap((field) => {
    const given = `opts.${camel(field.arg)}`;
    if (method.client.lists?.[field.wire] !== undefined) return [`${field.wire}: ${given} && [...${given}]`];
    return isNested(field, components) ? [`${field.wire}: ${given} && toWire(${given})`] : [];
  });
  const fixed = Object.entries(client.fixed ?? {}).map(([wire, value]) => `${wire}: ${value}`);
  const all = [...args, ...(hasFields ? ["...fields"] : []), ...nested, ...fixed];
  return all.length === 1 && all[0] === "...fields" ? "fields" : `{ ${all.join(", ")} }`;
}

function pair(field: Field): string {
  const arg = camel(field.arg);
  return arg === field.wire ? arg : `${field.wire}: ${arg}`;
}

function resultType({ answer }: Method): string {
  const refer = (component: string): string => `wire.${component}`;
  switch (answer.kind) {
    case "empty":
      return "void";
    case "text":
      return "string";
    case "bytes":
      return "AsyncIterable<Uint8Array>";
    case "page":
      return `Page<${typeOf(answer.schema, "  ", refer)}>`;
    case "json": {
      const type = typeOf(answer.schema, "  ", refer).replaceAll(/\s*\n\s*/g, " ");
      return answer.field === undefined ? type : `${type}["${answer.field}"]`;
    }
  }
}

function bodyType({ client, body }: Method): string {
  return client.forms?.type ?? OPTION_NAMES[body ?? ""] ?? `wire.${body}`;
}

function optionFields(method: Method): Field[] {
  if (method.client.body !== undefined) return method.options.filter((field) => field.place !== "body");
  return method.answer.kind === "page" ? method.options.filter(({ wire }) => wire !== "limit" && wire !== "cursor") : method.options;
}

function optionsType(method: Method): string {
  if (optionFields(method).length === 0) return base(method);
  return method.client.options ?? `${pascal(method.name)}Options`;
}

function base(method: Method): string {
  if (method.hasProgress) return "ProgressOptions";
  if (method.client.key !== undefined) return "OnceOptions";
  return method.answer.kind === "page" ? "PageOptions" : "CallOptions";
}

function record(fields: Field[], refer: (component: string) => string, method?: Method): string {
  const lines = fields.map((field) => {
    const item = method?.client.lists?.[field.wire];
    const isPairs = method?.client.takes?.[field.wire] === "pairs";
    const type = isPairs ? "wire.Metadata" : item === undefined ? typeOf(field.schema, "  ", refer) : listOf(item);
    const isRequired = method === undefined && field.isRequired;
    return `${comment(field.schema, "  ")}  ${camel(field.wire)}${isRequired ? "" : "?"}: ${type}${isRequired ? "" : " | undefined"};\n`;
  });
  return `{\n${lines.join("")}}`;
}

function listOf(item: string): string {
  return item === "string" ? "readonly string[]" : `wire.${item} | wire.${item}[]`;
}

function fieldsOf(schema: Schema): Field[] {
  return Object.entries(schema.properties ?? {}).map(([wire, property]) => {
    return { wire, arg: wire, place: "body", schema: property, isRequired: schema.required?.includes(wire) === true, isFlag: false };
  });
}

function optionsOf(component: string): string {
  return OPTION_NAMES[component] ?? `${component}Options`;
}

function referIn(components: Components): (component: string) => string {
  return (component) => {
    const schema = components[component] ?? {};
    return schema.type === "string" && schema.enum === undefined ? "string" : `wire.${component}`;
  };
}

/** Whether the schema has fields with other names in TypeScript */
function hasSnakeCase(schema: Schema): boolean {
  const forms = schema.anyOf ?? schema.oneOf ?? [schema];
  return forms.some((form) => Object.keys(form.properties ?? {}).some((name) => name.includes("_")));
}

function isNested({ schema }: Field, components: Components): boolean {
  return schema.$ref !== undefined && hasSnakeCase(resolve(schema, components));
}

function documentation(method: Method): string {
  const { client } = method;
  const text = inCamelCase(sentencesOf(method, "timeoutMs", "idempotencyKey"));
  const throws = Object.entries(client.throws ?? {}).map(([error, when]) => `@throws ${error} when ${inCamelCase(when)}`);
  const example = client.example === undefined ? [] : ["@example", "```ts", ...client.example.split("\n"), "```"];
  if (throws.length + example.length === 0 && text.length < WIDTH - 10) return `  /** ${text} */\n`;
  const lines = [...fill(text, WIDTH - 5), ...(throws.length + example.length > 0 ? [""] : []), ...throws, ...example];
  return `  /**\n${lines.map((line) => `   * ${line}`.trimEnd() + "\n").join("")}   */\n`;
}

function comment(schema: Schema, indent: string): string {
  const preset = schema.default === undefined || schema.default === null ? "" : `@default ${JSON.stringify(schema.default)}`;
  const text = inCamelCase([schema.description ?? "", preset].filter(Boolean).join(". "));
  return text === "" ? "" : `${indent}/** ${text.replaceAll("*/", "* /")} */\n`;
}

/** Converts field names in backticks to camelCase */
function inCamelCase(text: string): string {
  return text.replaceAll(/`[a-z]+(?:_[a-z]+)+`/g, camel);
}

function numeral(value: number): string {
  return String(value).replaceAll(/\B(?=(\d{3})+$)/g, "_");
}

/** Puts each argument on its own line if the line is too long */
function wrapped(line: string): string {
  if (line.length <= WIDTH) return line;
  const indent = /^ */.exec(line)?.[0] ?? "";
  const open = line.startsWith(`${indent}async`) || /^ {2}\w+\(/.test(line) ? line.indexOf("(") : line.indexOf("{ ");
  const close = line.lastIndexOf(line[open] === "(" ? ")" : " }");
  if (open < 0 || close < 0) return line;
  const end = line[open] === "(" ? line.lastIndexOf("):") : close;
  const inner = splitArguments(line.slice(open + 1, end).trim());
  return `${line.slice(0, open + 1)}\n${inner.map((part) => `${indent}  ${part},\n`).join("")}${indent}${line.slice(end).trimStart()}`;
}

/** Splits at commas outside brackets */
function splitArguments(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let part = "";
  for (const char of text) {
    if ("([{<".includes(char)) depth++;
    if (")]}>".includes(char)) depth--;
    if (char === "," && depth === 0) {
      parts.push(part.trim());
      part = "";
    } else part += char;
  }
  return [...parts, part.trim()].filter((item) => item !== "");
}

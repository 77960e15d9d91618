// Generator of the Python SDK's low-level client: one method per route. python/tools/unasync.py derives the blocking
// client.

import { pascal, PREFIX, resolve, sentencesOf, type Field, type Method } from "./methods.ts";
import { formPlace, nameOf, pythonType } from "./python-types.ts";
import { fill } from "./text.ts";
import type { Schema } from "./types.ts";

type Components = { [name: string]: Schema };

const WIDTH = 140;
const INDENT = "        ";
/** Python keywords, which cannot be argument names */
const KEYWORDS = new Set(["from"]);

export function printPythonController(methods: Method[], components: Components): string {
  const body = methods
    .filter((method) => method.client.byHand !== true)
    .map((method) => printMethod(method, components))
    .join("\n");
  const used = (names: string[]): string => names.filter((name) => new RegExp(`\\b${name}\\b`).test(body)).join(", ");
  return `from __future__ import annotations

from typing import ${used(["Any", "AsyncGenerator", "Dict", "List", "Literal", "Optional", "Union"])}

from .. import types
from .._call import ${used(["LINES", "Call"])}
from .._deadline import ${used(["fork_timeout", "guest_timeout"])}
from .._wire import ${used(["UNSET", "Key", "Page", "Unset", "fields", "joined", "key_of", "nullable", "octal", "pairs_of", "path", "text"])}
from .client import Client, ProgressListener
from .upload import Content


class GeneratedController:
    """The methods of the controller that are one request and its answer."""

    _client: Client

${body}`;
}

function printMethod(method: Method, components: Components): string {
  const { answer } = method;
  const result = resultType(method);
  const isStream = answer.kind === "bytes";
  const head = exploded(
    `    ${isStream ? "" : "async "}def ${snake(method.name)}(`,
    parameters(method, components),
    `) -> ${isStream ? "AsyncGenerator[bytes, None]" : result}:`,
  );
  const sent = method.hasProgress ? "progress" : isStream ? "stream" : answer.kind;
  const call = exploded(`${INDENT}call = Call[${callType(method, result)}](`, callArguments(method), ")");
  const given = method.hasProgress ? "call, on_progress" : "call";
  const start = answer.kind === "empty" ? "await " : isStream ? "return " : "return await ";
  const last =
    answer.kind === "json" && answer.field !== undefined
      ? `answer = await self._client.json(call)\n${INDENT}return answer["${answer.field}"]`
      : `${start}self._client.${sent}(${given})`;
  const body = bodyOf(method);
  return `${head}${docstring(method)}${body}${call}${INDENT}${last}\n`;
}

function parameters(method: Method, components: Components): string[] {
  const { client } = method;
  const positional = client.positional ?? [];
  const required = method.args.map((field) => parameter(method, field, components));
  // Parameters with a default must come last.
  const upload = method.upload === undefined ? [] : [`${method.upload}: Content`];
  const byPlace = positional.map((name) => parameter(method, optionNamed(method, name), components));
  const byName = method.options.filter((field) => !positional.includes(field.wire)).map((field) => parameter(method, field, components));
  const progress = method.hasProgress ? ["on_progress: Optional[ProgressListener] = None"] : [];
  const key =
    client.key === "made" ? ["idempotency_key: Key = UNSET"] : client.key === "given" ? ["idempotency_key: Optional[str] = None"] : [];
  return ["self", ...required, ...upload, ...byPlace, "*", ...byName, ...progress, ...key, "request_timeout: Optional[float] = None"];
}

function optionNamed(method: Method, name: string): Field {
  const found = method.options.find((field) => field.wire === name);
  if (found === undefined) throw new Error(`${method.route} has no option ${name}.`);
  return found;
}

function parameter(method: Method, field: Field, components: Components): string {
  const { client } = method;
  const preset = client.defaults?.[field.wire];
  const type = parameterType(method, field, components);
  if (field.isRequired) return `${field.arg}: ${type}${preset === undefined ? "" : ` = ${preset}`}`;
  if (client.seconds === "children" && field.wire === "n") return `n: ${type} = ${String(field.schema.default)}`;
  if (isClearable(method, field)) return `${field.arg}: ${union(type, "Unset, None")} = UNSET`;
  return `${field.arg}: ${type.startsWith("Union[") ? union(type, "None") : optional(type)} = None`;
}

function parameterType({ client, body }: Method, field: Field, components: Components): string {
  const item = client.lists?.[field.wire];
  if (item === "string") return "List[str]";
  if (item !== undefined) return `Union[types.${item}, List[types.${item}]]`;
  const takes = client.takes?.[field.wire];
  if (takes === "pairs") return "Dict[str, str]";
  if (takes !== undefined) return "Union[str, int]";
  if (field.schema.const === true) return "bool";
  const type = pythonType(field.schema, body === undefined ? "" : placeOf(body, field, components), (name) => {
    const schema = components[name];
    return schema?.type === "string" && schema.enum === undefined ? "str" : typeNamed(name);
  });
  return type.replace(/^Optional\[(.*)\]$/, "$1");
}

/** Name in types.py of a field's anonymous type */
function placeOf(body: string, field: Field, components: Components): string {
  const schema = resolve({ $ref: PREFIX + body }, components);
  const forms = schema.anyOf ?? schema.oneOf ?? [schema];
  const form = forms.find((choice) => field.wire in (choice.properties ?? {})) ?? schema;
  return formPlace(form, forms, body) + pascal(field.wire);
}

function typeNamed(component: string): string {
  return `types.${nameOf(component)}`;
}

/** Whether None is sent as null, which removes the value */
function isClearable({ verb }: Method, field: Field): boolean {
  const { type, anyOf } = field.schema;
  const isNullable = anyOf?.some((choice) => choice.type === "null") === true || (Array.isArray(type) && type.includes("null"));
  return isNullable && (verb === "PATCH" || verb === "PUT");
}

function optional(type: string): string {
  return `Optional[${type}]`;
}

function union(type: string, more: string): string {
  return type.startsWith("Union[") ? `Union[${type.slice("Union[".length, -1)}, ${more}]` : `Union[${type}, ${more}]`;
}

function bodyOf(method: Method): string {
  if (method.body === undefined) return "";
  const given = [...method.args, ...method.options].filter((field) => field.place === "body");
  const clearable = given.filter((field) => isClearable(method, field)).map((field) => keyword(method, field));
  const others = given.filter((field) => !isClearable(method, field)).map((field) => keyword(method, field));
  const fixed = Object.entries(method.client.fixed ?? {}).map(([wire, value]) => `${wire}=${value ? "True" : "False"}`);
  const fields = exploded(`${INDENT}body = fields(`, [...others, ...fixed], ")");
  if (clearable.length === 0) return fields;
  return `${fields}${exploded(`${INDENT}body.update(nullable(`, clearable, "))")}`;
}

function keyword(method: Method, field: Field): string {
  const value = converted(method, field);
  return KEYWORDS.has(field.wire) ? `**{"${field.wire}": ${value}}` : `${field.wire}=${value}`;
}

function converted({ client }: Method, field: Field): string {
  const takes = client.takes?.[field.wire];
  if (takes === "pairs") return `pairs_of(${field.arg})`;
  if (takes === "octal") return `octal(${field.arg})`;
  if (takes === "text") return field.place === "path" ? `str(${field.arg})` : `text(${field.arg})`;
  if (client.lists?.[field.wire] !== undefined && field.place === "query") return `joined(${field.arg})`;
  if (field.place === "path" && field.schema.type === "integer") return `str(${field.arg})`;
  return field.schema.const === true ? `${field.arg} or None` : field.arg;
}

function callArguments(method: Method): string[] {
  const { client, answers } = method;
  const params = method.args.filter((field) => field.place === "path").map((field) => converted(method, field));
  const query = [...method.args, ...method.options]
    .filter((field) => field.place === "query")
    .map((field) => `"${field.wire}": ${converted(method, field)}`);
  const parts = [`"${method.verb}"`, params.length === 0 ? `"${method.path}"` : `path("${method.path}", ${params.join(", ")})`];
  if (query.length > 0) parts.push(`query={${query.join(", ")}}`);
  if (method.body !== undefined) parts.push("json=body");
  if (method.upload !== undefined) parts.push(`content=${method.upload}`);
  if (method.hasProgress) parts.push("headers=LINES");
  if (client.key !== undefined) parts.push(`idempotency_key=${client.key === "made" ? "key_of(idempotency_key)" : "idempotency_key"}`);
  if (typeof client.repeatable === "boolean") parts.push(`can_repeat=${client.repeatable ? "True" : "False"}`);
  else if (client.repeatable !== undefined) parts.push(`can_repeat=${client.repeatable.unless} is not True`);
  if (answers.length > 0) parts.push(`answers=(${answers.join(", ")},)`);
  return [...parts, `timeout=${timeoutOf(client.seconds)}`];
}

function timeoutOf(seconds: Method["client"]["seconds"]): string {
  if (seconds === "guest") return "guest_timeout(timeout_secs, request_timeout)";
  if (seconds === "children") return "fork_timeout(self._client.timeout, n, request_timeout)";
  return seconds === undefined ? "request_timeout" : `${seconds}.0 if request_timeout is None else request_timeout`;
}

function resultType({ answer }: Method): string {
  switch (answer.kind) {
    case "empty":
      return "None";
    case "text":
      return "str";
    case "bytes":
      return "bytes";
    case "page":
      return `Page[${answerType(answer.schema)}]`;
    case "json":
      return answer.field === undefined ? answerType(answer.schema) : "List[types.ForkOutcome]";
  }
}

function callType({ answer }: Method, result: string): string {
  if (answer.kind === "page" || (answer.kind === "json" && answer.field !== undefined)) return answerType(answer.schema);
  return result;
}

/** Anonymous objects are dictionaries */
function answerType(schema: Schema): string {
  return schema.type === "object" ? "Dict[str, Any]" : pythonType(schema, "", typeNamed);
}

function docstring(method: Method): string {
  const { client } = method;
  const text = code(sentencesOf(method, "request_timeout", "idempotency_key"));
  const described = [...method.args, ...method.options].filter((field) => field.place !== "path").flatMap((field) => argumentText(field));
  const progress = method.hasProgress ? ["on_progress: Called for each step."] : [];
  const args = [...described, ...progress].flatMap((line) => indented(line, 12, 16));
  const raises = Object.entries(client.throws ?? {}).flatMap(([error, when]) => indented(`${error}: ${code(when)}`, 12, 16));
  const first = fill(`"""${text}`, WIDTH - INDENT.length);
  if (args.length + raises.length === 0) {
    const last = first.at(-1) ?? "";
    if (last.length + 3 <= WIDTH - INDENT.length) first[first.length - 1] = `${last}"""`;
    else first.push('"""');
    return first.map((line) => `${INDENT}${line}\n`).join("");
  }
  const parts = [
    ...first.map((line) => INDENT + line),
    ...(args.length > 0 ? ["", `${INDENT}Args:`, ...args] : []),
    ...(raises.length > 0 ? ["", `${INDENT}Raises:`, ...raises] : []),
    `${INDENT}"""`,
  ];
  return parts.map((line) => `${line}\n`).join("");
}

function argumentText({ arg, schema }: Field): string[] {
  const { description } = schema;
  const hasPreset = schema.default !== undefined && schema.default !== null && typeof schema.default !== "boolean";
  const preset = hasPreset ? ` (default ${String(schema.default)})` : "";
  return description === undefined
    ? hasPreset
      ? [`${arg}: Default ${String(schema.default)}.`]
      : []
    : [`${arg}: ${code(description)}${preset}.`];
}

function indented(line: string, first: number, rest: number): string[] {
  return fill(line, WIDTH - rest).map((part, at) => " ".repeat(at === 0 ? first : rest) + part);
}

/** Double backticks of reStructuredText; null becomes None */
function code(value: string): string {
  return value
    .replaceAll(/`([^`]+)`/g, "``$1``")
    .replaceAll(/\bnull\b/g, "None")
    .replaceAll("\\", "\\\\");
}

/** On one line if it fits, otherwise one argument per line */
function exploded(start: string, parts: string[], end: string): string {
  const line = `${start}${parts.join(", ")}${end}`;
  if (line.length <= WIDTH) return `${line}\n`;
  const indent = /^ */.exec(start)?.[0] ?? "";
  return `${start}\n${parts.map((part) => `${indent}    ${part},\n`).join("")}${indent}${end}\n`;
}

function snake(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

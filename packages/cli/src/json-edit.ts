// Changes one member of an object in a JSON text, and no other byte. The text must have been parsed before: here it is only walked.

export type Span = { start: number; end: number };

type Member = Span & { key: string; keyStart: number };

const BLANK = /\s/;

/** Where the value of a member of the object at `at` is */
export function memberOf(text: string, at: number, key: string): Span | undefined {
  return membersOf(text, skipBlank(text, at)).find((member) => member.key === key);
}

/** The text with a new or another value for a member of the object at `at` */
export function putMember(text: string, at: number, key: string, value: unknown): string {
  const start = skipBlank(text, at);
  const members = membersOf(text, start);
  const found = members.find((member) => member.key === key);
  const last = members.at(-1);
  const step = stepOf(text);
  if (found) return splice(text, found, valueText(value, indentOf(text, found.keyStart), step));
  if (last) {
    const indent = indentOf(text, last.keyStart);
    const isOneLine = !text.slice(start, last.keyStart).includes("\n");
    const before = isOneLine ? ", " : `,\n${indent}`;
    return splice(text, { start: last.end, end: last.end }, `${before}${JSON.stringify(key)}: ${valueText(value, indent, step)}`);
  }
  const outer = indentOf(text, start);
  const member = `${outer}${step}${JSON.stringify(key)}: ${valueText(value, outer + step, step)}`;
  return splice(text, { start: start + 1, end: skipBlank(text, start + 1) }, `\n${member}\n${outer}`);
}

function membersOf(text: string, start: number): Member[] {
  const members: Member[] = [];
  for (let at = skipBlank(text, start + 1); text[at] === '"';) {
    const keyStart = at;
    const keyEnd = skipValue(text, at);
    const valueStart = skipBlank(text, skipBlank(text, keyEnd) + 1);
    const end = skipValue(text, valueStart);
    members.push({ key: JSON.parse(text.slice(keyStart, keyEnd)) as string, keyStart, start: valueStart, end });
    at = skipBlank(text, end);
    if (text[at] === ",") at = skipBlank(text, at + 1);
  }
  return members;
}

/** The end of the value that begins here */
function skipValue(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const char = text[at] ?? "";
    if (char === '"') {
      at = stringEnd(text, at);
      if (depth === 0) return at + 1;
    } else if (char === "{" || char === "[") depth++;
    else if (char === "}" || char === "]") {
      if (--depth === 0) return at + 1;
      if (depth < 0) return at;
    } else if (depth === 0 && (char === "," || BLANK.test(char))) return at;
  }
  return text.length;
}

function stringEnd(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at;
}

function skipBlank(text: string, start: number): number {
  let at = start;
  while (BLANK.test(text[at] ?? "")) at++;
  return at;
}

/** What stands before the first character of this line */
function indentOf(text: string, at: number): string {
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, at);
  return /^[ \t]*/.exec(line)?.[0] ?? "";
}

/** What the file itself uses for one level */
function stepOf(text: string): string {
  return /\n([ \t]+)"/.exec(text)?.[1] ?? "  ";
}

function valueText(value: unknown, indent: string, step: string): string {
  return JSON.stringify(value, undefined, step).replaceAll("\n", `\n${indent}`);
}

function splice(text: string, { start, end }: Span, insert: string): string {
  return text.slice(0, start) + insert + text.slice(end);
}

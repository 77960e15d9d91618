// Detection of duplicate keys in JSON text, which are ambiguous.

/** @param value the parsed text, in which the last duplicate has won */
export function hasRepeatedKeys(text: string, value: unknown): boolean {
  return keysIn(text) > keysOf(value);
}

/** Counts keys: strings before a colon */
function keysIn(text: string): number {
  let count = 0;
  for (let at = text.indexOf('"'); at >= 0;) {
    let end = text.indexOf('"', at + 1);
    while (isEscaped(text, end)) end = text.indexOf('"', end + 1);
    let next = end + 1;
    while (isBlank(text.charCodeAt(next))) next++;
    if (text[next] === ":") count++;
    at = text.indexOf('"', next);
  }
  return count;
}

/** Not recursive: the text may be deeply nested */
function keysOf(value: unknown): number {
  let count = 0;
  const waiting = [value];
  while (waiting.length > 0) {
    const item = waiting.pop();
    if (typeof item !== "object" || item === null) continue;
    if (!Array.isArray(item)) count += Object.keys(item).length;
    for (const inner of Object.values(item)) if (typeof inner === "object") waiting.push(inner);
  }
  return count;
}

function isEscaped(text: string, at: number): boolean {
  let before = at;
  while (text[before - 1] === "\\") before--;
  return (at - before) % 2 === 1;
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

// Dedent of Python code, which clients write inside their own functions.

const BLANK_LINES = /^(?:[ \t]*\r?\n)+/;

/**
 * Removes the indentation of the first line from every line that has it, as the IPython kernel of E2B's server does:
 * plain `python3` rejects code whose first line is indented.
 */
export function dedented(code: string): string {
  const indent = /^[ \t]+/.exec(code.replace(BLANK_LINES, ""))?.[0];
  if (indent === undefined) return code;
  return code
    .split("\n")
    .map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line))
    .join("\n");
}

// All output of the CLI: tables and lines on stdout, notes on stderr, JSON for programs.

import { styleText } from "node:util";

type Style = Parameters<typeof styleText>[0];

/** `style` colours a cell by its text; `align` defaults to left */
export type Column<Row> = {
  title: string;
  value: (row: Row) => string;
  style?: (text: string) => Style | undefined;
  align?: "left" | "right";
  /** when the table is wider than the terminal, this column is wrapped; a function selects the values */
  wraps?: boolean | ((text: string) => boolean);
  /** the column is left out when all its values are empty */
  optional?: boolean;
};

/** Shown for a missing value */
const NONE = "-";
/** Smallest width of a wrapped column */
const MIN_WRAPPED = 8;
const GAP = "  ";
const DEFAULT_COLUMNS = 80;

const broken = new Set<"stdout" | "stderr">();

/** EPIPE: `forkd image ls | head` must neither crash nor stop running work */
export function ignoreBrokenPipes(): void {
  for (const name of ["stdout", "stderr"] as const) {
    process[name].on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
      broken.add(name);
    });
  }
}

export function printLine(text = ""): void {
  process.stdout.write(`${text}\n`);
}

/** A line for the user, not part of the command's result */
export function printNote(text: string): void {
  process.stderr.write(`${text.split("\n").map(plain).join("\n")}\n`);
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

/** A line that may contain text chosen by a guest or another user */
export function printPlain(text: string): void {
  printLine(plain(text));
}

/** Titles and values, one pair per line */
export function printFacts(facts: readonly (readonly [title: string, value: string])[]): void {
  const width = Math.max(...facts.map(([title]) => title.length)) + 2;
  for (const [title, value] of facts) printPlain(`${title.padEnd(width)}${value}`.trimEnd());
}

/** One value per line, for endless output */
export function printJsonLine(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Warnings of the daemon, such as options without effect: each is printed once */
export function printWarnings(answers: readonly { warnings: readonly string[] }[]): void {
  for (const warning of new Set(answers.flatMap((answer) => answer.warnings))) printNote(`Note: ${warning}`);
}

/** Raw bytes. Resolves when more can be written; does not reject when the reader has closed the pipe */
export async function writeBytes(to: "stdout" | "stderr", bytes: Uint8Array): Promise<void> {
  const stream = process[to];
  if (bytes.length === 0 || stream.write(bytes) || isBroken(to)) return;
  await new Promise<void>((done) => {
    const settle = (): void => {
      for (const event of ["drain", "close", "error"]) stream.off(event, settle);
      done();
    };
    for (const event of ["drain", "close", "error"]) stream.on(event, settle);
  });
}

/** Whether the reader has closed the pipe */
export function isBroken(stream: "stdout" | "stderr"): boolean {
  return broken.has(stream);
}

/** Text of a guest: unchanged into a pipe; on a terminal without escape sequences */
export async function writeGuestText(text: string, to: "stdout" | "stderr" = "stdout"): Promise<void> {
  // oxlint-disable-next-line no-control-regex -- matches control characters
  const safe = process[to].isTTY ? text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]+/g, "") : text;
  await writeBytes(to, Buffer.from(safe));
}

/** A screen that replaces the previous one; only for terminals */
export function rewriteScreen(text: string): void {
  process.stdout.write(`\x1b[H\x1b[2J${text}\n`);
}

/** Control sequences of a full-screen display; only for terminals, whose writes are synchronous */
export function writeScreen(text: string): void {
  process.stdout.write(text);
}

export function isTerminal(): boolean {
  return process.stdout.isTTY;
}

/** Columns of the terminal; no limit for a file or a pipe, unless COLUMNS is set */
export function outputWidth(): number {
  if (isTerminal()) return process.stdout.columns || DEFAULT_COLUMNS;
  return Number(process.env["COLUMNS"]) || Infinity;
}

export function printTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): void {
  printLine(formatTable(rows, columns));
}

/** A sentence, wrapped at the width of the terminal */
export function printParagraph(text: string): void {
  printLine(wrap(plain(text), outputWidth()).join("\n"));
}

/** Columns as wide as their content, up to the available width; the last one is not padded */
export function formatTable<Row>(rows: readonly Row[], all: readonly Column<Row>[], width = outputWidth()): string {
  const columns = all.filter(({ optional, value }) => !optional || rows.some((row) => ![NONE, ""].includes(value(row))));
  const cells = rows.map((row) => columns.map((column) => plain(column.value(row))));
  const widths = fitting(
    columns,
    columns.map((column, i) => Math.max(column.title.length, ...cells.map((line) => line[i]?.length ?? 0))),
    width,
  );
  const render = (line: string[], isHeader: boolean): string[] => {
    const wrapped = line.map((text, i) => {
      const wraps = columns[i]?.wraps;
      return typeof wraps === "function" && !wraps(text) ? [text] : wrap(text, widths[i] ?? 0);
    });
    const height = Math.max(...wrapped.map((lines) => lines.length));
    return Array.from({ length: height }, (_, at) =>
      columns
        .map((column, i) => {
          const text = wrapped[i]?.[at] ?? "";
          const padding = " ".repeat(Math.max(0, (widths[i] ?? 0) - text.length));
          const style = isHeader ? "bold" : column.style?.(line[i] ?? "");
          const styled = style ? colour(style, text) : text;
          if (column.align === "right") return padding + styled;
          return i === columns.length - 1 ? styled : styled + padding;
        })
        .join(GAP)
        .trimEnd(),
    );
  };
  const titles = columns.map((column) => column.title);
  return [render(titles, true), ...cells.map((line) => render(line, false))].flat().join("\n");
}

/** Narrows the widest wrapped columns until the table fits */
function fitting<Row>(columns: readonly Column<Row>[], wanted: number[], width: number): number[] {
  const widths = [...wanted];
  let over = widths.reduce((sum, each) => sum + each, 0) + GAP.length * (columns.length - 1) - width;
  for (; over > 0 && over !== Infinity; over--) {
    const room = columns.map(({ wraps, title }, i) => (wraps ? (widths[i] ?? 0) - Math.max(MIN_WRAPPED, title.length) : 0));
    const widest = Math.max(...room);
    if (widest <= 0) break;
    const at = room.indexOf(widest);
    widths[at] = (widths[at] ?? 0) - 1;
  }
  return widths;
}

/** At blanks; inside a word only if it is longer than a line */
function wrap(text: string, width: number): string[] {
  if (text.length <= width) return [text];
  const lines: string[] = [];
  let rest = text;
  while (rest.length > width) {
    const blank = rest.lastIndexOf(" ", width);
    lines.push(rest.slice(0, blank > 0 ? blank : width));
    rest = rest.slice(blank > 0 ? blank + 1 : width);
  }
  return [...lines, rest];
}

/** Respects NO_COLOR, FORCE_COLOR and pipes */
export function colour(style: Style, text: string): string {
  return styleText(style, text, { stream: process.stdout });
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** Text of images, hosts and guests must not control the terminal */
export function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex -- matches control characters
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
}

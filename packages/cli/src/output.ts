// Everything the CLI prints: tables and lines on stdout, notes on stderr, JSON for programs.

import { styleText } from "node:util";

type Style = Parameters<typeof styleText>[0];

/** `style` colours a cell by its text; `align` defaults to left */
export type Column<Row> = {
  title: string;
  value: (row: Row) => string;
  style?: (text: string) => Style | undefined;
  align?: "left" | "right";
};

const broken = new Set<"stdout" | "stderr">();

/** `forkd image ls | head` must neither crash nor stop work that is under way */
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

/** A line for the human, never part of the command's result */
export function printNote(text: string): void {
  process.stderr.write(`${text.split("\n").map(plain).join("\n")}\n`);
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

/** A line that may hold what a guest or another user chose */
export function printPlain(text: string): void {
  printLine(plain(text));
}

/** Titles and values, one pair a line */
export function printFacts(facts: readonly (readonly [title: string, value: string])[]): void {
  const width = Math.max(...facts.map(([title]) => title.length)) + 2;
  for (const [title, value] of facts) printPlain(`${title.padEnd(width)}${value}`.trimEnd());
}

/** One value per line, for what has no end */
export function printJsonLine(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** What was accepted and has no effect, and the like: each once */
export function printWarnings(answers: readonly { warnings: readonly string[] }[]): void {
  for (const warning of new Set(answers.flatMap((answer) => answer.warnings))) printNote(`Note: ${warning}`);
}

/** Bytes as they are. Resolves when more can be taken, and never rejects for a reader that went away */
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

/** Whether its reader went away */
export function isBroken(stream: "stdout" | "stderr"): boolean {
  return broken.has(stream);
}

/** Text of a guest: as it is into a pipe, without what could steer a terminal otherwise */
export async function writeGuestText(text: string, to: "stdout" | "stderr" = "stdout"): Promise<void> {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  const safe = process[to].isTTY ? text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]+/g, "") : text;
  await writeBytes(to, Buffer.from(safe));
}

/** A screenful that replaces the one before; only for terminals */
export function rewriteScreen(text: string): void {
  process.stdout.write(`\x1b[H\x1b[2J${text}\n`);
}

export function isTerminal(): boolean {
  return process.stdout.isTTY;
}

/** Columns as wide as their content; the last one is never padded */
export function printTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): void {
  printLine(formatTable(rows, columns));
}

export function formatTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const cells = rows.map((row) => columns.map((column) => plain(column.value(row))));
  const widths = columns.map((column, i) => Math.max(column.title.length, ...cells.map((line) => line[i]?.length ?? 0)));
  const render = (line: string[], isHeader: boolean): string =>
    columns
      .map((column, i) => {
        const text = line[i] ?? "";
        const padding = " ".repeat((widths[i] ?? 0) - text.length);
        const style = isHeader ? "bold" : column.style?.(text);
        const styled = style ? colour(style, text) : text;
        if (column.align === "right") return padding + styled;
        return i === columns.length - 1 ? styled : styled + padding;
      })
      .join("  ")
      .trimEnd();
  return [
    render(
      columns.map((column) => column.title),
      true,
    ),
    ...cells.map((line) => render(line, false)),
  ].join("\n");
}

/** Honours NO_COLOR, FORCE_COLOR and pipes */
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

/** What comes from images, hosts and guests must not steer the terminal */
function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
}

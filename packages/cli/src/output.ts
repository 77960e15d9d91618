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

/** `forkd image ls | head` must neither crash nor stop work that is under way */
export function ignoreBrokenPipes(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
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

// Draws rows of the tree as lines. Pure: the same rows, state and size give the same lines.

import { formatAge } from "../terminal/format.ts";
import { formatBytes } from "../terminal/output.ts";
import { cellsOf, fitted, harmless } from "./cells.ts";

import type { Row } from "./rows.ts";
import type { TopState } from "./keys.ts";
import type { TerminalSize } from "../terminal/raw-terminal.ts";

export type Look = "plain" | "title" | "selected" | "dim" | "error";
export type Line = { text: string; look: Look };

export type Drawing = {
  size: TerminalSize;
  utf8: boolean;
  /** milliseconds since 1970 */
  now: number;
};

type Column = { title: string; width: number; value: (row: Row, now: number) => string; align?: "left" | "right" };
type Marks = { fork: string; last: string; down: string; blank: string; collapsed: string; more: string; dash: string };

const BOX: Marks = { fork: "├ ", last: "└ ", down: "│ ", blank: "  ", collapsed: "▸ ", more: "…", dash: "—" };
const ASCII: Marks = { fork: "|-", last: "`-", down: "| ", blank: "  ", collapsed: "+ ", more: "~", dash: "-" };

/** In the order in which they are left out of a narrow terminal: the last one first */
const COLUMNS: Column[] = [
  { title: "STATE", width: 9, value: (row) => row.state },
  { title: "CPU", width: 6, value: ({ usage }) => (usage?.cpu === undefined ? "" : `${Math.round(usage.cpu)} %`), align: "right" },
  { title: "MEMORY", width: 10, value: ({ usage }) => (usage ? formatBytes(usage.memoryBytes) : ""), align: "right" },
  { title: "AGE", width: 4, value: (row, now) => ageOf(row, now), align: "right" },
  { title: "PROCESS", width: 10, value: ({ usage }) => (usage ? formatBytes(usage.processBytes) : ""), align: "right" },
  { title: "DISK", width: 10, value: ({ usage }) => (usage?.diskBytes == null ? "" : formatBytes(usage.diskBytes)), align: "right" },
];
const TREE_TITLE = "TREE";
/** Width that the tree keeps before a column is added: an id below one snapshot */
const TREE_WIDTH = 24;
const GAP = "  ";

const HELP_LINE = "f fork  b branch  x end  / search  s sort  space fold  ? help  q quit";
const HELP = [
  "Keys of forkd top",
  "",
  "Up, Down, j, k        select the previous or next row",
  "PgUp, PgDn, g, G      a page up or down, the first or last row",
  "Left, Right, space    fold or unfold a snapshot; C folds all, E unfolds all",
  "f                     fork: a snapshot, or a branch of a running sandbox",
  "b                     branch a running sandbox, which continues",
  "x, Delete             end a sandbox, after a question",
  "/                     show only what contains a text: names, ids, states,",
  "                      metadata; Esc shows all again",
  "s                     sort by the next of name, CPU, memory, age",
  "q, Ctrl-C             quit; sandboxes keep running",
];

/** How many rows of the tree are visible */
export function bodyHeight({ rows }: TerminalSize): number {
  return Math.max(1, rows - headHeight(rows) - footHeight(rows));
}

/** A whole screen: exactly as many lines as the terminal has, each exactly as wide */
export function frame(rows: readonly Row[], state: TopState, drawing: Drawing): Line[] {
  const { size, utf8 } = drawing;
  const marks = utf8 ? BOX : ASCII;
  const height = bodyHeight(size);
  const columns = columnsFor(size.cols);
  const width = treeWidth(size.cols, columns);
  const body: Line[] = state.help
    ? HELP.slice(0, height).map((text, i) => ({ text, look: i === 0 ? "title" : "plain" }))
    : rows.slice(state.offset, state.offset + height).map((row) => ({
        text: rowText(row, columns, width, { marks, now: drawing.now }),
        look: row.key === state.selected ? "selected" : row.state === "running" || row.kind === "snapshot" ? "plain" : "dim",
      }));
  if (body.length === 0) body.push({ text: emptyText(state), look: "plain" });
  while (body.length < height) body.push({ text: "", look: "plain" });
  const head: Line[] = [
    { text: summary(rows, state), look: "plain" },
    { text: titleText(columns, width), look: "title" },
  ];
  const foot = footLine(rows, state, height);
  const lines = [...head.slice(head.length - headHeight(size.rows)), ...body, foot];
  // in one row a question or a message replaces the tree
  const shown = size.rows === 1 && (state.prompt || state.message) ? [foot] : lines.slice(0, size.rows);
  return shown.map(({ text, look }) => ({ text: fitted(harmless(text), size.cols, { more: marks.more }), look }));
}

/** The tree with all rows, for files and pipes; without columns that are empty */
export function plainLines(rows: readonly Row[], opts: { width: number; utf8: boolean; now: number }): string[] {
  const marks = opts.utf8 ? BOX : ASCII;
  const columns = columnsFor(opts.width).filter(({ value }) => rows.some((row) => value(row, opts.now) !== ""));
  const longest = rows.reduce((widest, row) => Math.max(widest, cellsOf(treeText(row, Infinity, marks))), TREE_TITLE.length);
  const width = Math.min(longest, treeWidth(opts.width, columns));
  return [titleText(columns, width).trimEnd(), ...rows.map((row) => rowText(row, columns, width, { marks, now: opts.now }).trimEnd())];
}

/** One line is always the tree's; a title comes before the summary */
function headHeight(rows: number): number {
  return rows >= 6 ? 2 : rows >= 4 ? 1 : 0;
}

function footHeight(rows: number): number {
  return rows >= 2 ? 1 : 0;
}

function columnsFor(width: number): Column[] {
  let left = width - TREE_WIDTH;
  const fit = COLUMNS.findIndex((column) => (left -= column.width + GAP.length) < 0);
  return fit < 0 ? COLUMNS : COLUMNS.slice(0, fit);
}

function treeWidth(width: number, columns: readonly Column[]): number {
  return width - columns.reduce((sum, column) => sum + column.width + GAP.length, 0);
}

function titleText(columns: readonly Column[], width: number): string {
  const titles = columns.map(({ title, width: own, align }) => fitted(title, own, { more: "", align: align ?? "left" }));
  return [fitted(TREE_TITLE, width, { more: "" }), ...titles].join(GAP);
}

function rowText(row: Row, columns: readonly Column[], width: number, { marks, now }: { marks: Marks; now: number }): string {
  const cells = columns.map((column) =>
    fitted(harmless(column.value(row, now)), column.width, { more: marks.more, align: column.align ?? "left" }),
  );
  return [fitted(treeText(row, width, marks), width, { more: marks.more }), ...cells].join(GAP);
}

/** The lines to the parents take at most half of the width, so that a deep row keeps its name */
function treeText(row: Row, width: number, marks: Marks): string {
  const above = row.follows.slice(1, -1).map((follows) => (follows ? marks.down : marks.blank));
  const own = row.depth === 0 ? [] : [row.follows.at(-1) ? marks.fork : marks.last];
  const rails = [...above, ...own].join("");
  const room = Math.max(2, Math.floor(width / 2));
  const shown = rails.length > room ? marks.more + rails.slice(rails.length - room + 1) : rails;
  const folded = row.isCollapsed ? ` (${row.below} below)` : "";
  return `${shown}${row.isCollapsed ? marks.collapsed : ""}${harmless(row.label)}${folded}`;
}

function ageOf(row: Row, now: number): string {
  return row.kind === "snapshot" || row.createdAt === undefined ? "" : formatAge(row.createdAt, now);
}

function summary(rows: readonly Row[], state: TopState): string {
  const { totals } = state;
  const shown = state.view.filter === "" ? "" : `, ${rows.length} rows with "${state.view.filter}"`;
  const cpu = totals.cpu === undefined ? "" : `, CPU ${Math.round(totals.cpu)} %`;
  const memory = `, memory ${formatBytes(totals.memoryBytes)}`;
  return `${totals.sandboxes} sandboxes, ${totals.snapshots} snapshots${cpu}${memory}, by ${state.view.sort}${shown}`;
}

function footLine(rows: readonly Row[], state: TopState, height: number): Line {
  if (state.prompt) return { text: `${state.prompt.question} ${state.prompt.text}_`, look: "title" };
  if (state.message) return { text: state.message.text, look: state.message.isError ? "error" : "plain" };
  const place = rows.length > height ? `${state.offset + 1}-${Math.min(rows.length, state.offset + height)} of ${rows.length}  ` : "";
  return { text: state.help ? "Any key: back to the tree" : `${place}${HELP_LINE}`, look: "dim" };
}

function emptyText(state: TopState): string {
  if (state.view.filter !== "") return "Nothing contains this text. Esc shows all again.";
  return "There are no snapshots. Make one with 'forkd snapshot create'.";
}

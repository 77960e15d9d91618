// Keys of forkd top: bytes become keys, and a key changes the state or asks for an action. Pure.

import { MAX_FORKS } from "../options/values.ts";
import { SORTS, type Row, type Sort } from "./rows.ts";

export type Action =
  | { kind: "quit" }
  | { kind: "interrupt" }
  | { kind: "fork"; target: Target; n: number }
  | { kind: "branch"; id: string; tag: string | undefined }
  | { kind: "kill"; id: string };

export type Target = { kind: Row["kind"]; name: string };

export type Prompt = { question: string; text: string } & (
  | { kind: "search" }
  | { kind: "fork"; target: Target }
  | { kind: "branch"; id: string }
  | { kind: "kill"; id: string }
);

export type Totals = { sandboxes: number; snapshots: number; cpu: number | undefined; memoryBytes: number };

export type TopState = {
  view: { sort: Sort; filter: string; collapsed: ReadonlySet<string> };
  selected: string | undefined;
  /** index of the selected row, for the case that the row is removed */
  at: number;
  /** index of the first visible row */
  offset: number;
  prompt: Prompt | undefined;
  message: { text: string; isError: boolean } | undefined;
  help: boolean;
  totals: Totals;
};

/** Length of what is typed at a question */
const MAX_TYPED = 64;
const ESCAPES: Record<string, string> = {
  "[A": "up",
  OA: "up",
  "[B": "down",
  OB: "down",
  "[C": "right",
  OC: "right",
  "[D": "left",
  OD: "left",
  "[H": "home",
  OH: "home",
  "[1~": "home",
  "[F": "end",
  OF: "end",
  "[4~": "end",
  "[5~": "pageup",
  "[6~": "pagedown",
  "[3~": "delete",
};
const NAMED: Record<string, string> = {
  "\u001b": "escape",
  "\r": "enter",
  "\n": "enter",
  "\u007f": "backspace",
  "\b": "backspace",
  "\u0003": "interrupt",
};
/** A sequence of the terminal, a lone escape key, or one character */
// oxlint-disable-next-line no-control-regex -- keys are control characters
const KEY = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])|[^]/gu;

export const START: TopState = {
  view: { sort: "name", filter: "", collapsed: new Set() },
  selected: undefined,
  at: 0,
  offset: 0,
  prompt: undefined,
  message: undefined,
  help: false,
  totals: { sandboxes: 0, snapshots: 0, cpu: undefined, memoryBytes: 0 },
};

/** Names of special keys, and characters; unknown sequences are dropped */
export function keysIn(typed: string): string[] {
  return [...typed.matchAll(KEY)].flatMap(([key]) => {
    if (key.length > 1 && key.startsWith("\u001b")) return ESCAPES[key.slice(1)] ?? [];
    if (NAMED[key] !== undefined) return NAMED[key];
    return key >= " " ? key : [];
  });
}

/** After a refresh, a change of size or a key: an existing row is selected and visible */
export function settle(state: TopState, rows: readonly Row[], height: number): TopState {
  const found = rows.findIndex(({ key }) => key === state.selected);
  const at = Math.max(0, Math.min(found < 0 ? state.at : found, rows.length - 1));
  const last = Math.max(0, rows.length - height);
  const offset = Math.min(last, Math.max(at - height + 1, Math.min(state.offset, at)));
  return { ...state, at, selected: rows[at]?.key, offset: Math.max(0, offset) };
}

export function press(before: TopState, key: string, rows: readonly Row[], height: number): { state: TopState; action?: Action } {
  if (key === "interrupt") return { state: before, action: { kind: "interrupt" } };
  if (before.prompt) return answer(before, before.prompt, key);
  const state: TopState = { ...before, message: undefined, help: false };
  if (before.help) return key === "q" ? { state, action: { kind: "quit" } } : { state };
  const row = rows[state.at];
  const go = (to: number): { state: TopState } => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    return { state: { ...state, at, selected: rows[at]?.key } };
  };
  const look = (view: Partial<TopState["view"]>): { state: TopState } => ({ state: { ...state, view: { ...state.view, ...view } } });
  switch (key) {
    case "q":
      return { state, action: { kind: "quit" } };
    case "up":
    case "k":
      return go(state.at - 1);
    case "down":
    case "j":
      return go(state.at + 1);
    case "pageup":
      return go(state.at - height);
    case "pagedown":
      return go(state.at + height);
    case "home":
    case "g":
      return go(0);
    case "end":
    case "G":
      return go(rows.length - 1);
    case "left":
    case "h":
      return row && row.below > 0 && !row.isCollapsed ? look(folding(state, row.key, true)) : go(parentOf(rows, state.at));
    case "right":
    case "l":
      return row?.isCollapsed ? look(folding(state, row.key, false)) : go(row && row.below > 0 ? state.at + 1 : state.at);
    case " ":
    case "enter":
      return row && row.below > 0 ? look(folding(state, row.key, !row.isCollapsed)) : { state };
    case "C":
      return look({ collapsed: new Set([...state.view.collapsed, ...rows.filter(({ below }) => below > 0).map((each) => each.key)]) });
    case "E":
      return look({ collapsed: new Set() });
    case "s":
      return look({ sort: SORTS[(SORTS.indexOf(state.view.sort) + 1) % SORTS.length] ?? "name" });
    case "?":
      return { state: { ...state, help: true } };
    case "/":
      return { state: { ...state, prompt: { kind: "search", question: "Search:", text: state.view.filter } } };
    case "escape":
      return look({ filter: "" });
    case "f":
    case "b":
    case "x":
    case "delete":
      return row ? { state: ask(state, key, row) } : { state };
    default:
      return { state };
  }
}

function ask(state: TopState, key: "f" | "b" | "x" | "delete", row: Row): TopState {
  const refuse = (text: string): TopState => ({ ...state, message: { text, isError: true } });
  const { target } = row;
  if (target === undefined) return refuse("This snapshot was removed and has no tag; it is kept because something builds on it.");
  const prompt = (given: Prompt): TopState => ({ ...state, prompt: given });
  if (key === "f") {
    const what = row.kind === "snapshot" ? `Fork ${target}` : `Branch ${target} and fork the branch`;
    return prompt({ kind: "fork", target: { kind: row.kind, name: target }, question: `${what}; how many? [1]`, text: "" });
  }
  if (row.kind === "snapshot") {
    return refuse(
      key === "b" ? "Only a running sandbox can be branched; f forks a snapshot." : `To remove it: forkd snapshot rm ${target}`,
    );
  }
  if (key === "b") return prompt({ kind: "branch", id: target, question: `Tag for the branch of ${target}? [generated]`, text: "" });
  return prompt({ kind: "kill", id: target, question: `End ${target}? Its state is lost. [y/N]`, text: "" });
}

function answer(state: TopState, prompt: Prompt, key: string): { state: TopState; action?: Action } {
  const done = { ...state, prompt: undefined };
  const typing = (text: string): { state: TopState } => {
    const next = { ...state, prompt: { ...prompt, text: text.slice(0, MAX_TYPED) } };
    return { state: prompt.kind === "search" ? { ...next, view: { ...state.view, filter: next.prompt.text } } : next };
  };
  if (key === "escape") return { state: prompt.kind === "search" ? { ...done, view: { ...state.view, filter: "" } } : done };
  if (key === "backspace") return typing(prompt.text.replace(/.$/u, ""));
  // one key answers this question
  if (prompt.kind === "kill") return /^y$/i.test(key) ? { state: done, action: { kind: "kill", id: prompt.id } } : { state: done };
  if (key !== "enter") return /^.$/u.test(key) ? typing(prompt.text + key) : { state };
  switch (prompt.kind) {
    case "search":
      return { state: done };
    case "branch":
      return { state: done, action: { kind: "branch", id: prompt.id, tag: prompt.text.trim() || undefined } };
    case "fork": {
      const n = prompt.text.trim() === "" ? 1 : Number(prompt.text);
      if (!Number.isSafeInteger(n) || n < 1 || n > MAX_FORKS)
        return { state: { ...done, message: { text: `Nothing was forked: it must be a number from 1 to ${MAX_FORKS}.`, isError: true } } };
      return { state: done, action: { kind: "fork", target: prompt.target, n } };
    }
  }
}

function folding(state: TopState, key: string, isCollapsed: boolean): { collapsed: Set<string> } {
  const collapsed = new Set(state.view.collapsed);
  if (isCollapsed) collapsed.add(key);
  else collapsed.delete(key);
  return { collapsed };
}

function parentOf(rows: readonly Row[], at: number): number {
  const depth = rows[at]?.depth ?? 0;
  const above = rows.slice(0, at).findLastIndex((row) => row.depth < depth);
  return above < 0 ? at : above;
}

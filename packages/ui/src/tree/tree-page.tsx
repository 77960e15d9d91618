// The first page: the tree with its rails, live. Only the rows in view are in the document.

import { computed, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ActionButtons, actionsFor, openAction, type Target } from "../actions.tsx";
import { bytes, count, duration, mib, visible } from "../format.ts";
import { entries, totals, tree, treeError, usage } from "../live.ts";
import { Link, Problem, State } from "../parts.tsx";
import { go, sandboxPath, snapshotPath } from "../router.ts";
import { isCluster } from "../session.ts";
import { FirstUse } from "./first-use.tsx";
import { Rails } from "./rails.tsx";
import { labelOf, parentsIn, rowsOf, type Entry, type Row } from "./rows.ts";
import type { JSX } from "preact";

const ROW_HEIGHT = 36;
const OVERSCAN = 8;
const AGE_MS = 10_000;
const STATES = ["running", "paused", "suspended", "ended", "lost"];

const search = signal("");
const states = signal<ReadonlySet<string>>(new Set());
const collapsed = signal<ReadonlySet<string>>(new Set());
const selected = signal<string | null>(null);

const rows = computed(() => rowsOf(entries.value, { search: search.value, states: states.value, collapsed: collapsed.value }));
const selectedRow = computed(() => rows.value.find(({ entry }) => entry.key === selected.value) ?? null);

export function TreePage(): JSX.Element {
  if (tree.value === null)
    return (
      <main class="page" aria-busy="true">
        <h1>Tree</h1>
        <Problem text={treeError.value} />
      </main>
    );
  if (entries.value.length === 0) return <FirstUse />;
  return (
    <main class="page tree-page">
      <h1 class="sr-only">Tree</h1>
      <Summary />
      <Toolbar />
      <Problem text={treeError.value} />
      <Grid />
      <Selection />
    </main>
  );
}

function Summary(): JSX.Element {
  const { sandboxes, running, snapshots, guestBytes, privateBytes } = totals.value;
  const saved = Math.max(0, guestBytes - privateBytes);
  return (
    <ul class="summary" aria-label="Totals">
      <li>
        <strong data-testid="running">{running.toLocaleString("en")}</strong> running
      </li>
      <li>
        <strong>{sandboxes.toLocaleString("en")}</strong> {sandboxes === 1 ? "sandbox" : "sandboxes"}
      </li>
      <li>
        <strong>{snapshots.toLocaleString("en")}</strong> {snapshots === 1 ? "snapshot" : "snapshots"}
      </li>
      <li>
        <strong>{bytes(privateBytes)}</strong> own memory
      </li>
      <li class="good">
        <strong>{bytes(saved)}</strong> saved by sharing
      </li>
    </ul>
  );
}

function Toolbar(): JSX.Element {
  const toggle = (state: string): void => {
    const next = new Set(states.value);
    if (!next.delete(state)) next.add(state);
    states.value = next;
  };
  const isAllFolded = collapsed.value.size > 0;
  return (
    <div class="toolbar" role="search">
      <input
        type="search"
        id="search"
        aria-label="Search names, ids, states and metadata"
        placeholder="Search names, tags, key=value  ( / )"
        value={search.value}
        onInput={(event) => (search.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") search.value = "";
          if (event.key === "ArrowDown" || event.key === "Enter") document.querySelector<HTMLElement>(".grid")?.focus();
        }}
      />
      <div class="chips" role="group" aria-label="Only these states">
        {STATES.map((state) => (
          <button key={state} type="button" class="chip" aria-pressed={states.value.has(state)} onClick={() => toggle(state)}>
            {state}
          </button>
        ))}
      </div>
      <button type="button" class="quiet" onClick={() => (collapsed.value = isAllFolded ? new Set() : new Set(parentsIn(entries.value)))}>
        {isAllFolded ? "Unfold all" : "Fold all"}
      </button>
    </div>
  );
}

function Grid(): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 900 });
  const now = useNow();
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const read = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(read);
    observer.observe(element);
    element.addEventListener("scroll", read, { passive: true });
    read();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", read);
    };
  }, []);
  useEffect(() => {
    if (document.activeElement === document.body) box.current?.focus({ preventScroll: true });
    return focusSearchOnSlash();
  }, []);
  const all = rows.value;
  const first = Math.max(0, Math.floor(view.top / ROW_HEIGHT) - OVERSCAN);
  const last = Math.min(all.length, Math.ceil((view.top + view.height) / ROW_HEIGHT) + OVERSCAN);
  const active = selectedRow.value;
  return (
    <div
      class={isCluster() ? "grid has-nodes" : "grid"}
      role="treegrid"
      aria-label="Snapshots and sandboxes"
      aria-rowcount={all.length + 1}
      tabIndex={0}
      ref={box}
      {...(active ? { "aria-activedescendant": rowId(active.entry) } : {})}
      onKeyDown={(event) => press(event, box.current)}
    >
      <div class="row head" role="row" aria-rowindex={1}>
        <span role="columnheader" class="name">
          Name
        </span>
        {isCluster() && (
          <span role="columnheader" class="node">
            Node
          </span>
        )}
        <span role="columnheader">State</span>
        <span role="columnheader" class="number age">
          Age
        </span>
        <span role="columnheader" class="number memory">
          Own memory
        </span>
        <span role="columnheader" class="number shared">
          Shared
        </span>
        <span role="columnheader" class="number cpu">
          CPU
        </span>
        <span role="columnheader" class="network">
          Network
        </span>
      </div>
      <div class="rows" role="rowgroup" style={{ height: `${all.length * ROW_HEIGHT}px` }}>
        <div role="presentation" style={{ transform: `translateY(${first * ROW_HEIGHT}px)` }}>
          {all.slice(first, last).map((row, at) => (
            <TreeRow key={row.entry.key} row={row} index={first + at + 2} isSelected={row.entry.key === selected.value} now={now} />
          ))}
        </div>
      </div>
      {all.length === 0 && (
        <div role="row" aria-rowindex={2} class="none">
          <span role="gridcell">Nothing matches the search and the filters.</span>
        </div>
      )}
    </div>
  );
}

function TreeRow({ row, index, isSelected, now }: { row: Row; index: number; isSelected: boolean; now: number }): JSX.Element {
  const { entry } = row;
  const used = entry.kind === "sandbox" ? usage.value.get(entry.sandbox.id) : undefined;
  const facts = entry.kind === "sandbox" ? entry.sandbox : entry.node;
  const canFold = entry.children.length > 0;
  return (
    <div
      class={`row is-${entry.kind}`}
      role="row"
      id={rowId(entry)}
      aria-level={row.level}
      aria-rowindex={index}
      aria-selected={isSelected}
      {...(canFold ? { "aria-expanded": !row.isCollapsed } : {})}
      onClick={() => (selected.value = entry.key)}
      onDblClick={() => open(entry)}
    >
      <span role="gridcell" class="name">
        <Rails row={row} height={ROW_HEIGHT} />
        {!canFold && <span class="fold" />}
        {canFold && (
          <button type="button" class="fold" tabIndex={-1} aria-label={row.isCollapsed ? "Unfold" : "Fold"} onClick={() => fold(entry.key)}>
            {row.isCollapsed ? "▸" : "▾"}
          </button>
        )}
        <Name entry={entry} />
        {row.isCollapsed && <span class="below">{count(row.below, "entry", "entries")} below</span>}
      </span>
      {isCluster() && <NodeCell entry={entry} />}
      <span role="gridcell">
        {entry.kind === "sandbox" ? <State state={entry.sandbox.state} /> : <SnapshotState status={entry.node.status} />}
      </span>
      <span role="gridcell" class="number age">
        {duration(now - facts.created_at_unix)}
      </span>
      <span role="gridcell" class="number memory">
        {used ? bytes(used.privateBytes) : entry.kind === "snapshot" ? <span class="dim">{mib(facts.memory_mib)}</span> : "–"}
      </span>
      <span role="gridcell" class="number shared">
        {used && bytes(Math.max(0, facts.memory_mib * 1024 * 1024 - used.privateBytes))}
      </span>
      <span role="gridcell" class="number cpu">
        {used?.cpu !== undefined && `${Math.round(used.cpu)} %`}
      </span>
      <span role="gridcell" class="network">
        {entry.kind === "sandbox" && <span class={`net is-${entry.sandbox.network_mode}`}>{entry.sandbox.network_mode}</span>}
      </span>
    </div>
  );
}

function Name({ entry }: { entry: Entry }): JSX.Element {
  const label = visible(labelOf(entry));
  if (entry.kind === "snapshot" && entry.node.tag === null) return <span class="label dim">{label}</span>;
  const pairs = entry.kind === "sandbox" ? Object.entries(entry.sandbox.metadata) : [];
  return (
    <>
      <Link class="label" to={pathOf(entry)} tabIndex={-1}>
        {label}
      </Link>
      {entry.kind === "sandbox" && entry.sandbox.name !== null && <span class="id">{entry.sandbox.id}</span>}
      {pairs.slice(0, 3).map(([key, value]) => (
        <button
          key={key}
          type="button"
          tabIndex={-1}
          class="pair"
          title={`Only ${visible(key)}=${visible(value)}`}
          onClick={() => (search.value = `${key}=${value}`)}
        >
          {visible(key)}={visible(value)}
        </button>
      ))}
    </>
  );
}

/** The node of a sandbox, or the first of those that hold a snapshot */
function NodeCell({ entry }: { entry: Entry }): JSX.Element {
  const codes = entry.kind === "sandbox" ? [entry.sandbox.node] : entry.node.nodes;
  const [first = ""] = codes;
  return (
    <span role="gridcell" class="node mono" title={codes.join(", ")}>
      {codes.length > 1 ? `${first} +${codes.length - 1}` : first}
    </span>
  );
}

function SnapshotState({ status }: { status: string }): JSX.Element {
  return status === "ready" ? <span class="dim">snapshot</span> : <State state={status} />;
}

/** Actions of the selected row; on a phone they are at the bottom, under the thumb */
function Selection(): JSX.Element | null {
  const row = selectedRow.value;
  if (!row) return null;
  const target = targetOf(row.entry);
  return (
    <aside class="selection" aria-label="Actions of the selected row">
      <strong>{visible(labelOf(row.entry))}</strong>
      <Link class="button" to={pathOf(row.entry)}>
        Open
      </Link>
      <ActionButtons target={target} />
    </aside>
  );
}

function press(event: KeyboardEvent, box: HTMLDivElement | null): void {
  if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = rows.value;
  const at = all.findIndex(({ entry }) => entry.key === selected.value);
  const row = all[at];
  const page = Math.max(1, Math.floor((box?.clientHeight ?? 0) / ROW_HEIGHT) - 2);
  const moves: Record<string, number> = {
    ArrowDown: at + 1,
    j: at + 1,
    ArrowUp: at - 1,
    k: at - 1,
    Home: 0,
    End: all.length - 1,
    PageDown: at + page,
    PageUp: at - page,
  };
  const to = moves[event.key];
  if (to !== undefined) {
    event.preventDefault();
    const next = Math.max(0, Math.min(all.length - 1, to));
    selected.value = all[next]?.entry.key ?? null;
    reveal(box, next);
    return;
  }
  if (!row) return;
  const { entry } = row;
  const canFold = entry.children.length > 0;
  if (event.key === "Enter") open(entry);
  else if (event.key === "ArrowRight" && canFold && row.isCollapsed) fold(entry.key);
  else if (event.key === "ArrowLeft" && canFold && !row.isCollapsed) fold(entry.key);
  else if (event.key === "ArrowLeft") selectParent(all, at, box);
  else if (event.key === " " && canFold) fold(entry.key);
  else {
    const target = targetOf(entry);
    const action = actionsFor(target).find(({ key }) => key === event.key);
    if (!action) return;
    openAction(action, target);
  }
  event.preventDefault();
}

function selectParent(all: readonly Row[], at: number, box: HTMLDivElement | null): void {
  const level = all[at]?.level ?? 0;
  for (let above = at - 1; above >= 0; above--) {
    const row = all[above];
    if (!row || row.level >= level) continue;
    selected.value = row.entry.key;
    reveal(box, above);
    return;
  }
}

function reveal(box: HTMLDivElement | null, index: number): void {
  if (!box) return;
  // the row of titles stays on top
  const top = index * ROW_HEIGHT;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + 2 * ROW_HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * ROW_HEIGHT - box.clientHeight;
}

function fold(key: string): void {
  const next = new Set(collapsed.value);
  if (!next.delete(key)) next.add(key);
  collapsed.value = next;
}

function open(entry: Entry): void {
  if (entry.kind === "sandbox" || entry.node.tag !== null) go(pathOf(entry));
}

function pathOf(entry: Entry): string {
  return entry.kind === "sandbox" ? sandboxPath(entry.sandbox.name ?? entry.sandbox.id) : snapshotPath(entry.node.tag ?? entry.node.id);
}

function targetOf(entry: Entry): Target {
  return entry.kind === "sandbox" ? { kind: "sandbox", sandbox: entry.sandbox } : { kind: "snapshot", node: entry.node };
}

function rowId(entry: Entry): string {
  return `row-${entry.key}`;
}

/** Unix time, for ages */
function useNow(): number {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), AGE_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}

function focusSearchOnSlash(): () => void {
  const focus = (event: KeyboardEvent): void => {
    const isTyping = event.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key !== "/" || isTyping || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    document.querySelector<HTMLElement>("#search")?.focus();
  };
  addEventListener("keydown", focus);
  return () => removeEventListener("keydown", focus);
}

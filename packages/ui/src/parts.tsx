// Parts that the pages share: buttons, copy, notices, dialogs, facts, empty states.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { explain } from "./api.ts";
import { go, href } from "./router.ts";
import type { ComponentChildren, HTMLAttributes, JSX } from "preact";

const NOTICE_MS = 8000;

export type Notice = { text: string; isError: boolean; undo?: { label: string; run: () => Promise<unknown> } };

const notice = signal<Notice | null>(null);
let noticeTimer: ReturnType<typeof setTimeout> | undefined;

export function say(text: string, undo?: Notice["undo"]): void {
  show({ text, isError: false, ...(undo ? { undo } : {}) });
}

export function complain(error: unknown): void {
  const text = explain(error);
  if (text !== null) show({ text, isError: true });
}

function show(next: Notice): void {
  clearTimeout(noticeTimer);
  notice.value = next;
  // an error stays until it is closed
  if (!next.isError) noticeTimer = setTimeout(() => (notice.value = null), NOTICE_MS);
}

export function Notices(): JSX.Element {
  const now = notice.value;
  return (
    <div class="notices" role="status" aria-live="polite">
      {now && (
        <div class={`notice ${now.isError ? "is-error" : ""}`}>
          <span>{now.text}</span>
          {now.undo && (
            <button
              type="button"
              class="quiet"
              onClick={() => {
                const { undo } = now;
                notice.value = null;
                undo?.run().then(() => say("Undone."), complain);
              }}
            >
              {now.undo.label}
            </button>
          )}
          <button type="button" class="quiet" aria-label="Close the message" onClick={() => (notice.value = null)}>
            ×
          </button>
        </div>
      )}
    </div>
  );
}

export function Link({
  to,
  children,
  ...rest
}: { to: string; children: ComponentChildren } & Omit<HTMLAttributes<HTMLAnchorElement>, "role">): JSX.Element {
  const follow = (event: MouseEvent): void => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a {...rest} href={href(to)} onClick={follow}>
      {children}
    </a>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }): JSX.Element {
  const [isDone, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    await writeClipboard(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="quiet copy" onClick={() => void copy()} aria-label={`${label}: ${text}`}>
      {isDone ? "Copied" : label}
    </button>
  );
}

/** The clipboard interface exists only on secure origins; a daemon on a private network may have none */
async function writeClipboard(text: string): Promise<void> {
  if (isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** The command line that does the same */
export function Command({ line }: { line: string }): JSX.Element {
  return (
    <div class="command">
      <code>{line}</code>
      <Copy text={line} />
    </div>
  );
}

export function State({ state }: { state: string }): JSX.Element {
  return <span class={`state is-${state}`}>{state}</span>;
}

export function Facts({ facts }: { facts: readonly (readonly [string, ComponentChildren])[] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A bar of what is used of a limit */
export function Meter({ label, percent, text }: { label: string; percent: number; text: string }): JSX.Element {
  const values = { "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": percent, "aria-valuetext": text };
  return (
    <div class={`meter ${percent >= 90 ? "is-full" : ""}`} role="meter" aria-label={label} {...values}>
      <i style={{ width: `${percent}%` }} />
    </div>
  );
}

/** `number`: a column that is aligned to the right */
export function Table(props: { columns: readonly (string | { number: string })[]; children: ComponentChildren }): JSX.Element {
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            {props.columns.map((column, at) =>
              typeof column === "string" ? (
                <th key={at}>{column}</th>
              ) : (
                <th key={at} class="number">
                  {column.number}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>{props.children}</tbody>
      </table>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Card({
  title,
  children,
  actions,
}: {
  title: string;
  children: ComponentChildren;
  actions?: ComponentChildren;
}): JSX.Element {
  return (
    <section class="card">
      <header>
        <h2>{title}</h2>
        {actions}
      </header>
      {children}
    </section>
  );
}

export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  // before the next key: it is meant for the dialog
  useLayoutEffect(() => box.current?.showModal(), []);
  return (
    <dialog ref={box} aria-label={title} onClose={onClose}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

/** A form whose button is disabled while its work runs */
export function Ask(props: {
  label: string;
  isDanger?: boolean | undefined;
  onSubmit: () => Promise<unknown>;
  onClose?: (() => void) | undefined;
  children?: ComponentChildren;
}): JSX.Element {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await props.onSubmit();
    } catch (error) {
      setProblem(explain(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      {props.children}
      {problem !== null && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <footer class="buttons">
        {props.onClose && (
          <button type="button" class="quiet" onClick={props.onClose}>
            Cancel
          </button>
        )}
        <button type="submit" class={props.isDanger ? "danger" : "primary"} disabled={isBusy}>
          {isBusy ? "Working…" : props.label}
        </button>
      </footer>
    </form>
  );
}

export function Field({ label, children, help }: { label: string; children: ComponentChildren; help?: ComponentChildren }): JSX.Element {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {help !== undefined && <small>{help}</small>}
    </label>
  );
}

export type Loaded<T> = { value: T | undefined; error: string | null; reload: () => void };

/** Reads something when the page opens, again when `deps` change or on `reload`, and with `everyMs` regularly */
export function useLoaded<T>(read: (signal: AbortSignal) => Promise<T>, deps: readonly unknown[], everyMs?: number): Loaded<T> {
  const [state, setState] = useState<{ value: T | undefined; error: string | null }>({ value: undefined, error: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async (): Promise<void> => {
      try {
        const value = await read(stop.signal);
        if (!stop.signal.aborted) setState({ value, error: null });
      } catch (error) {
        if (!stop.signal.aborted) setState((before) => ({ ...before, error: explain(error) }));
      }
      if (everyMs !== undefined && !stop.signal.aborted) timer = setTimeout(() => void run(), everyMs);
    };
    void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...deps, round]);
  return { ...state, reload: () => setRound((before) => before + 1) };
}

export function Problem({ text }: { text: string | null }): JSX.Element | null {
  return text === null ? null : (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

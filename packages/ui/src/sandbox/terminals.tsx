// Terminals of a sandbox. They are processes of the guest: they survive a reload, and forks of the sandbox have them too.

import { useEffect, useRef, useState } from "preact/hooks";
import { forkd } from "../api.ts";
import { commandLine } from "../format.ts";
import { Command, complain, Empty } from "../parts.tsx";
import { Screen } from "./screen.ts";
import type { JSX } from "preact";
import type { SandboxInfo } from "forkd";

const TAG = "ui-terminal-";
/** The first shell that the guest has */
const SHELL = ["/bin/sh", "-c", 'for shell in bash ash sh; do command -v "$shell" >/dev/null && exec "$shell" -i; done'];

type Terminal = { process: number; label: string };

export function Terminals({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const [all, setAll] = useState<Terminal[] | null>(null);
  const [shown, setShown] = useState<number | null>(null);
  const isRunning = sandbox.state === "running";

  const read = async (): Promise<Terminal[]> => {
    const processes = await forkd.listProcesses(sandbox.id);
    return processes.flatMap(({ id, tag, state, terminal }) =>
      terminal && state === "running" && tag?.startsWith(TAG) ? [{ process: id, label: tag.slice(TAG.length) }] : [],
    );
  };
  const open = async (known: readonly Terminal[]): Promise<void> => {
    const number = 1 + Math.max(0, ...known.map(({ label }) => Number(label) || 0));
    const { id } = await forkd.startProcess(sandbox.id, SHELL, {
      tag: `${TAG}${number}`,
      terminal: { rows: 24, cols: 80 },
      env: { TERM: "xterm-256color" },
    });
    setAll([...known, { process: id, label: String(number) }]);
    setShown(id);
  };
  useEffect(() => {
    if (!isRunning) return;
    const begin = async (): Promise<void> => {
      const known = await read();
      if (known.length === 0) await open([]);
      else {
        setAll(known);
        setShown(known[0]?.process ?? null);
      }
    };
    begin().catch(complain);
  }, [sandbox.id, isRunning]);

  if (!isRunning)
    return (
      <Empty title={`The sandbox is ${sandbox.state}`}>
        <p>A terminal needs a running sandbox. Its terminals continue when it is resumed.</p>
      </Empty>
    );
  const close = async (process: number): Promise<void> => {
    await forkd.killProcess(sandbox.id, String(process));
    const rest = (all ?? []).filter((terminal) => terminal.process !== process);
    setAll(rest);
    setShown(rest[0]?.process ?? null);
  };
  return (
    <section class="terminals" aria-label="Terminals">
      <div class="terminal-tabs">
        {all?.map(({ process, label }) => (
          <button key={process} type="button" class="chip" aria-pressed={process === shown} onClick={() => setShown(process)}>
            Terminal {label}
          </button>
        ))}
        <button type="button" class="quiet" onClick={() => void open(all ?? []).catch(complain)}>
          + New terminal
        </button>
        {shown !== null && (
          <button type="button" class="quiet" onClick={() => void close(shown).catch(complain)}>
            Close this one
          </button>
        )}
      </div>
      {all?.map(({ process }) => (
        <TerminalBox key={process} sandbox={sandbox.id} process={process} isShown={process === shown} />
      ))}
      {shown !== null && <Command line={commandLine("attach", sandbox.name ?? sandbox.id, shown)} />}
    </section>
  );
}

function TerminalBox({ sandbox, process, isShown }: { sandbox: string; process: number; isShown: boolean }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const [note, setNote] = useState<string | null>("Connecting…");
  useEffect(() => {
    if (!box.current) return;
    const made = new Screen(box.current, { sandbox, process, onNote: setNote });
    screen.current = made;
    return () => made.close();
  }, [sandbox, process]);
  useEffect(() => {
    if (isShown) screen.current?.show();
  }, [isShown]);
  return (
    <div class="terminal-box" style={isShown ? {} : { display: "none" }}>
      <div ref={box} style={{ height: "100%" }} />
      {note !== null && <div class="terminal-note">{note}</div>}
    </div>
  );
}

// Logs of a sandbox: console, agent or VMM, as they are written.

import { useEffect, useRef, useState } from "preact/hooks";
import { explain, forkd } from "../api.ts";
import { commandLine, plain } from "../format.ts";
import { Card, Command, Problem } from "../parts.tsx";
import type { JSX } from "preact";
import type { SandboxInfo } from "forkd";

const MAX_SHOWN = 256 * 1024;
const SOURCES = { console: "Guest console", agent: "Agent", vmm: "VMM" } as const;

type Source = keyof typeof SOURCES;

export function Logs({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const [source, setSource] = useState<Source>("console");
  const [text, setText] = useState("");
  const [error, setError] = useState<string | null>(null);
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const stop = new AbortController();
    setText("");
    setError(null);
    const read = async (): Promise<void> => {
      for await (const piece of forkd.logs(sandbox.id, { source, follow: true, signal: stop.signal }))
        setText((before) => (before + piece).slice(-MAX_SHOWN));
    };
    read().catch((thrown: unknown) => {
      if (!stop.signal.aborted) setError(explain(thrown));
    });
    return () => stop.abort();
  }, [sandbox.id, source]);
  useEffect(() => {
    const element = box.current;
    if (element && element.scrollHeight - element.scrollTop - element.clientHeight < 200) element.scrollTop = element.scrollHeight;
  }, [text]);
  return (
    <Card
      title="Logs"
      actions={
        <select aria-label="Which log" value={source} onChange={(event) => setSource(event.currentTarget.value as Source)}>
          {Object.entries(SOURCES).map(([name, label]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      }
    >
      <Problem text={error} />
      <pre class="output" ref={box} tabIndex={0} aria-label={`Log of ${SOURCES[source]}`}>
        {text === "" ? "Nothing was written yet." : plain(text)}
      </pre>
      <Command line={commandLine("logs", "-f", "--source", source, sandbox.name ?? sandbox.id)} />
    </Card>
  );
}

// Processes that were started through the daemon, their output, and a line to start another one.

import { useEffect, useState } from "preact/hooks";
import { explain, forkd } from "../api.ts";
import { commandLine, plain, visible } from "../format.ts";
import { Ask, Card, Command, complain, Field, Problem, Table, useLoaded } from "../parts.tsx";
import type { JSX } from "preact";
import type { ProcessInfo, SandboxInfo } from "forkd";

const REFRESH_MS = 3000;
const MAX_SHOWN = 256 * 1024;

export function Processes({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const [watched, setWatched] = useState<number | null>(null);
  const [line, setLine] = useState("");
  const { value, error, reload } = useLoaded(async (signal) => forkd.listProcesses(sandbox.id, { signal }), [sandbox.id], REFRESH_MS);
  const name = sandbox.name ?? sandbox.id;
  const start = async (): Promise<void> => {
    const { id } = await forkd.startProcess(sandbox.id, ["/bin/sh", "-c", line]);
    setLine("");
    setWatched(id);
    reload();
  };
  return (
    <div class="cards">
      <Card title="Processes">
        <Problem text={error} />
        <Table columns={[{ number: "Id" }, "Program", "State", ""]}>
          {value?.toReversed().map((process) => (
            <tr key={process.id}>
              <td class="number">{process.id}</td>
              <td class="mono">{programOf(process)}</td>
              <td>{process.state === "running" ? "running" : `exit ${process.exit_code ?? ""}`}</td>
              <td class="buttons-cell">
                <button type="button" class="quiet" onClick={() => setWatched(process.id)}>
                  Output
                </button>
                {process.state === "running" && (
                  <button
                    type="button"
                    class="danger quiet"
                    onClick={() => void forkd.killProcess(sandbox.id, String(process.id)).then(reload, complain)}
                  >
                    Kill
                  </button>
                )}
              </td>
            </tr>
          ))}
        </Table>
        {value?.length === 0 && <p class="dim">No process was started through the daemon yet.</p>}
        <Ask label="Run" onSubmit={start}>
          <Field label="Run a shell command">
            <input
              class="mono"
              value={line}
              required
              placeholder="python3 -m http.server 8000"
              onInput={(event) => setLine(event.currentTarget.value)}
            />
          </Field>
          <Command line={commandLine("exec", "-d", name, "--", "sh", "-c", line || "COMMAND")} />
        </Ask>
      </Card>
      {watched !== null && <Output key={watched} sandbox={sandbox} process={watched} />}
    </div>
  );
}

function Output({ sandbox, process }: { sandbox: SandboxInfo; process: number }): JSX.Element {
  const [text, setText] = useState("");
  const [end, setEnd] = useState<string | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    const decoder = new TextDecoder();
    const read = async (): Promise<void> => {
      for await (const event of forkd.watchProcess(sandbox.id, String(process), { signal: stop.signal })) {
        if (event.type === "stdout" || event.type === "stderr") {
          const more = decoder.decode(event.bytes, { stream: true });
          setText((before) => (before + more).slice(-MAX_SHOWN));
        }
        if (event.type === "exit") setEnd(`It ended with exit code ${event.exit_code}.`);
      }
    };
    read().catch((error: unknown) => {
      if (!stop.signal.aborted) setEnd(explain(error));
    });
    return () => stop.abort();
  }, [sandbox.id, process]);
  return (
    <Card title={`Output of process ${process}`}>
      <pre class="output" tabIndex={0} aria-label={`Output of process ${process}`}>
        {plain(text)}
      </pre>
      {end !== null && <p class="dim">{end}</p>}
      <Command line={commandLine("attach", sandbox.name ?? sandbox.id, process)} />
    </Card>
  );
}

function programOf({ args, tag }: ProcessInfo): string {
  const words = visible(args.join(" "));
  return tag === null ? words : `${words} (${visible(tag)})`;
}

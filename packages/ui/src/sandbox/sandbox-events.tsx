// Everything that happened to a sandbox.

import { useEffect, useState } from "preact/hooks";
import { explain, forkd } from "../api.ts";
import { commandLine } from "../format.ts";
import { Card, Command, Problem } from "../parts.tsx";
import { EventTable } from "../pages/event-table.tsx";
import type { JSX } from "preact";
import type { ForkdEvent, SandboxInfo } from "forkd";

const MAX_SHOWN = 300;

export function SandboxEvents({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const [events, setEvents] = useState<ForkdEvent[]>([]);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    const read = async (): Promise<void> => {
      for await (const event of forkd.events({ sandbox: sandbox.id, since: 0, signal: stop.signal }))
        setEvents((before) => [event, ...before].slice(0, MAX_SHOWN));
    };
    read().catch((thrown: unknown) => {
      if (!stop.signal.aborted) setError(explain(thrown));
    });
    return () => stop.abort();
  }, [sandbox.id]);
  return (
    <Card title="Events">
      <Problem text={error} />
      <EventTable events={events} />
      <Command line={commandLine("events", "--sandbox", sandbox.id)} />
    </Card>
  );
}

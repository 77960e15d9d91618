// Every change of state since the page was opened.

import { recentEvents } from "../live.ts";
import { Card, Command, Empty } from "../parts.tsx";
import { EventTable } from "./event-table.tsx";
import type { JSX } from "preact";

export function EventsPage(): JSX.Element {
  return (
    <main class="page">
      <h1>Events</h1>
      {recentEvents.value.length === 0 ? (
        <Empty title="Nothing happened since you opened the dashboard">
          <p>Each fork, branch and end of a sandbox appears here at once.</p>
        </Empty>
      ) : (
        <Card title="Newest first">
          <EventTable events={recentEvents.value} />
        </Card>
      )}
      <Command line="forkd events" />
    </main>
  );
}

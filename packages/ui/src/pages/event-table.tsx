// Events as a table, newest first.

import { visible } from "../format.ts";
import { Link, Table } from "../parts.tsx";
import { sandboxPath, snapshotPath } from "../router.ts";
import type { JSX } from "preact";
import type { ForkdEvent } from "forkd";

export function EventTable({ events }: { events: readonly ForkdEvent[] }): JSX.Element {
  return (
    <Table columns={["Time", "Event", "Of", "By", "Reason"]}>
      {events.map((event) => (
        <tr key={`${event.id} ${event.time} ${event.sandbox ?? event.snapshot ?? ""}`}>
          <td>{new Date(event.time).toLocaleTimeString()}</td>
          <td>{event.type}</td>
          <td class="mono">
            {event.sandbox !== null && <Link to={sandboxPath(event.sandbox)}>{event.sandbox}</Link>}{" "}
            {event.snapshot !== null && <Link to={snapshotPath(event.snapshot)}>{visible(event.snapshot)}</Link>}
          </td>
          <td>{visible(event.principal ?? "")}</td>
          <td>{visible(event.reason ?? "")}</td>
        </tr>
      ))}
    </Table>
  );
}

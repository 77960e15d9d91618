// Servers in a sandbox, each with a link that opens it in a tab of its own origin.

import { useState } from "preact/hooks";
import { forkd } from "../api.ts";
import { commandLine, time, visible } from "../format.ts";
import { Card, Command, complain, Copy, Problem, Table, useLoaded } from "../parts.tsx";
import type { JSX } from "preact";
import type { Preview, SandboxInfo } from "forkd";

const REFRESH_MS = 4000;

export function Ports({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const { value: ports, error } = useLoaded(async (signal) => forkd.listPorts(sandbox.id, { signal }), [sandbox.id], REFRESH_MS);
  const [links, setLinks] = useState<Record<number, Preview>>({});
  const name = sandbox.name ?? sandbox.id;
  const open = async (port: number): Promise<void> => {
    const made = await forkd.createPreview(sandbox.id, port);
    setLinks((before) => ({ ...before, [port]: made }));
    // noopener: the guest's page gets no handle on the dashboard
    window.open(made.url, "_blank", "noopener,noreferrer");
  };
  return (
    <Card title="Listening ports">
      <Problem text={error} />
      <Table columns={[{ number: "Port" }, "Address", "Process", "Preview link", ""]}>
        {ports?.map(({ port, address, process }) => (
          <tr key={`${port} ${address}`}>
            <td class="number mono">{port}</td>
            <td class="mono">{address}</td>
            <td>{process ? `${visible(process.name)} (${process.pid})` : "–"}</td>
            <td>
              {links[port] && (
                <>
                  until {time(links[port].expires_at_unix)} <Copy text={links[port].url} label="Copy link" />
                </>
              )}
            </td>
            <td class="buttons-cell">
              <button type="button" onClick={() => void open(port).catch(complain)}>
                Open
              </button>
            </td>
          </tr>
        ))}
      </Table>
      {ports?.length === 0 && (
        <p class="dim">
          No program listens. Start one in the terminal, such as <code>python3 -m http.server 8000</code>.
        </p>
      )}
      <Command line={commandLine("preview", name, ports?.[0]?.port ?? "8000")} />
      <Command line={commandLine("port", name, ports?.[0]?.port ?? "8000")} />
    </Card>
  );
}

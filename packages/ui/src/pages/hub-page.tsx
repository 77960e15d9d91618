// The hub: snapshots by name on a web server, and pulls with their progress.

import { useState } from "preact/hooks";
import { explain, forkd } from "../api.ts";
import { bytes, commandLine, visible } from "../format.ts";
import { Ask, Card, Command, Empty, Field, Link, Table, useLoaded } from "../parts.tsx";
import { snapshotPath } from "../router.ts";
import { may } from "../session.ts";
import { Steps, useWork } from "./work.tsx";
import type { JSX } from "preact";

export function HubPage(): JSX.Element {
  const isAdmin = may("admin");
  return (
    <main class="page">
      <h1>Hub</h1>
      {isAdmin ? <Hub /> : <Empty title="The hub needs the scope admin" />}
    </main>
  );
}

function Hub(): JSX.Element {
  const { value, error } = useLoaded(async (signal) => forkd.listHub({ signal }), []);
  const [from, setFrom] = useState("");
  return (
    <>
      <Pull from={from} setFrom={setFrom} />
      {error !== null && (
        <Empty title="No hub answers">
          <p>{error}</p>
        </Empty>
      )}
      {value && (
        <Card title={`Index of ${visible(value.hub)}`}>
          <Table columns={["Name", "Description", { number: "Size" }, ""]}>
            {value.packages.map(({ name, description, versions }) => (
              <tr key={name}>
                <td class="mono">{visible(name)}</td>
                <td>{visible(description ?? "")}</td>
                <td class="number">{versions[0]?.size_bytes ? bytes(versions[0].size_bytes) : ""}</td>
                <td class="buttons-cell">
                  <button type="button" onClick={() => setFrom(name)}>
                    Choose
                  </button>
                </td>
              </tr>
            ))}
          </Table>
          <Command line="forkd hub ls" />
        </Card>
      )}
    </>
  );
}

function Pull({ from, setFrom }: { from: string; setFrom: (text: string) => void }): JSX.Element {
  const work = useWork();
  const [made, setMade] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const run = async (): Promise<void> => {
    setMade(null);
    setProblem(null);
    try {
      const { snapshot } = await work.run(async (onProgress) => forkd.pullSnapshot(from, { onProgress, timeoutMs: 0 }));
      setMade(snapshot.tag);
    } catch (error) {
      setProblem(explain(error));
    }
  };
  return (
    <Card title="Pull a snapshot">
      <Ask label="Pull" onSubmit={run}>
        <Field label="From" help="OWNER/NAME of the hub, oci://HOST/NAME:TAG, or an https address">
          <input required value={from} onInput={(event) => setFrom(event.currentTarget.value)} />
        </Field>
        <Steps work={work} />
        {problem !== null && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        {made !== null && (
          <p role="status">
            The snapshot <Link to={snapshotPath(made)}>{made}</Link> is here.
          </p>
        )}
        <Command line={commandLine("pull", from || "OWNER/NAME")} />
      </Ask>
    </Card>
  );
}

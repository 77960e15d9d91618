// The nodes of a cluster: whether they answer, how full they are, and which snapshots they hold.

import { useState } from "preact/hooks";
import { forkd } from "../api.ts";
import { bytes, count, duration, mib } from "../format.ts";
import { Card, Command, Empty, Facts, Field, Link, Meter, Problem, State, useLoaded } from "../parts.tsx";
import { snapshotPath } from "../router.ts";
import { isCluster } from "../session.ts";
import type { JSX } from "preact";
import type { ClusterNode } from "forkd";

const REFRESH_MS = 5000;
const SHOWN = 60;
const SHOWN_SNAPSHOTS = 12;

export function NodesPage(): JSX.Element {
  return (
    <main class="page">
      <h1>Nodes</h1>
      {isCluster() ? (
        <Nodes />
      ) : (
        <Empty title="This daemon is not in a cluster">
          <p>Ask a gateway: it shows the nodes that it serves.</p>
        </Empty>
      )}
    </main>
  );
}

function Nodes(): JSX.Element {
  const { value, error } = useLoaded(async (signal) => forkd.cluster({ signal }), [], REFRESH_MS);
  const [search, setSearch] = useState("");
  const [shown, setShown] = useState(SHOWN);
  const nodes = value?.nodes ?? [];
  const found = nodes.filter((node) => textOf(node).includes(search.toLowerCase()));
  const sandboxes = nodes.reduce((sum, node) => sum + node.sandboxes, 0);
  const up = nodes.filter(({ state }) => state === "up").length;
  return (
    <>
      <Problem text={error} />
      {value && (
        <ul class="summary" aria-label="Totals">
          <li>
            <strong>{up.toLocaleString("en")}</strong> of {count(nodes.length, "node")} {nodes.length === 1 ? "answers" : "answer"}
          </li>
          <li>
            <strong>{sandboxes.toLocaleString("en")}</strong> {sandboxes === 1 ? "sandbox" : "sandboxes"}
          </li>
          <li>
            <strong>{value.moved.snapshots.toLocaleString("en")}</strong> {value.moved.snapshots === 1 ? "snapshot" : "snapshots"} moved,{" "}
            {bytes(value.moved.bytes)}
          </li>
        </ul>
      )}
      {nodes.length > SHOWN_SNAPSHOTS && (
        <Field label="Search" help="Code, address, state, or the tag of a snapshot">
          <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </Field>
      )}
      {value && found.length === 0 && <Empty title="No node matches" />}
      <div class="cards">
        {found.slice(0, shown).map((node) => (
          <NodeCard key={node.url} node={node} />
        ))}
      </div>
      {found.length > shown && (
        <button type="button" onClick={() => setShown(shown + SHOWN)}>
          Show more
        </button>
      )}
      <Command line="forkd cluster status" />
    </>
  );
}

function NodeCard({ node }: { node: ClusterNode }): JSX.Element {
  const { code, url, state, problem, memory, sandboxes, max_sandboxes: most } = node;
  const label = code ?? url ?? "";
  const total = memory.committed_mib + memory.available_mib;
  const seen = node.last_seen_unix === null ? "never" : `${duration(Date.now() / 1000 - node.last_seen_unix)} ago`;
  return (
    <Card
      title={label}
      actions={
        <span class="states">
          {isCordoned(node) && <State state="cordoned" />}
          <State state={state} />
        </span>
      }
    >
      {problem !== null && <Problem text={`It does not answer: ${problem}. Its last answer: ${seen}.`} />}
      <Facts
        facts={[
          ["Address", <code key="url">{url ?? "this daemon"}</code>],
          [
            "Sandboxes",
            <>
              {sandboxes} of at most {most}
              <Meter label={`Sandboxes of ${label}`} percent={share(sandboxes, most)} text={`${sandboxes} of ${most}`} />
            </>,
          ],
          [
            "Memory",
            <>
              {mib(memory.committed_mib)} committed, {mib(memory.available_mib)} available
              <Meter
                label={`Memory of ${label}`}
                percent={share(memory.committed_mib, total)}
                text={`${mib(memory.committed_mib)} committed`}
              />
            </>,
          ],
          ["Disk", `${mib(node.disk_free_mib)} free`],
          ["Load", node.load.toFixed(2)],
          ["Version", node.version ?? "not known"],
          ["Accelerator", node.accelerator ?? "not known"],
          ["Snapshots", <Held key="held" snapshots={node.snapshots} />],
        ]}
      />
    </Card>
  );
}

function Held({ snapshots }: Pick<ClusterNode, "snapshots">): JSX.Element {
  const [isAll, setAll] = useState(false);
  if (snapshots.length === 0) return <>none</>;
  const more = snapshots.length - SHOWN_SNAPSHOTS;
  return (
    <>
      {(isAll ? snapshots : snapshots.slice(0, SHOWN_SNAPSHOTS)).map(({ tag, id, pool }) => (
        <span key={id}>
          <Link to={snapshotPath(tag)}>{tag}</Link>
          {pool > 0 && <span class="dim"> ({pool} waiting)</span>}{" "}
        </span>
      ))}
      {more > 0 && !isAll && (
        <button type="button" class="quiet" onClick={() => setAll(true)}>
          and {more} more
        </button>
      )}
    </>
  );
}

/** Nodes of an earlier version do not say it */
function isCordoned({ cordoned }: ClusterNode): boolean {
  return cordoned;
}

function share(part: number, whole: number): number {
  return whole <= 0 ? 0 : Math.min(100, Math.round((part / whole) * 100));
}

function textOf(node: ClusterNode): string {
  const { code, url, state, snapshots } = node;
  return [code ?? "", url ?? "", state, isCordoned(node) ? "cordoned" : "", ...snapshots.map(({ tag }) => tag)].join(" ").toLowerCase();
}

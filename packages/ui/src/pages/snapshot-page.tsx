// One snapshot: what it is made of, what it costs, and what descends from it.

import { ActionButtons, findSnapshot } from "../actions.tsx";
import { forkd } from "../api.ts";
import { bytes, commandLine, count, mib, ms, time, visible } from "../format.ts";
import { Card, Command, Copy, Empty, Facts, Link, Problem, State, useLoaded } from "../parts.tsx";
import { sandboxPath, snapshotPath } from "../router.ts";
import { isCluster } from "../session.ts";
import type { JSX } from "preact";

const HOLDERS_MS = 10_000;

export function SnapshotPage({ parts }: { parts: string[] }): JSX.Element {
  const [tag = ""] = parts;
  const node = findSnapshot(tag);
  const { value, error } = useLoaded(
    async (signal) => Promise.all([forkd.getSnapshot(tag, { signal }), forkd.snapshotInfo(tag, { signal })]),
    [tag, node?.status, node?.snapshots.length, node?.sandboxes.length],
  );
  if (!value) {
    return (
      <main class="page" aria-busy={error === null}>
        <h1>{visible(tag)}</h1>
        {error !== null && (
          <Empty title="There is no such snapshot">
            <p>{error}</p>
            <Link to="/">Back to the tree</Link>
          </Empty>
        )}
      </main>
    );
  }
  const [info, details] = value;
  return (
    <main class="page">
      <header class="page-head">
        <div>
          <h1>
            {info.tag}
            <State state={info.status} />
          </h1>
          <div class="lineage">
            {info.parent_tag !== null && (
              <>
                builds on <Link to={snapshotPath(info.parent_tag)}>{info.parent_tag}</Link>
                <span aria-hidden="true">·</span>
              </>
            )}
            {info.branched_from !== null && (
              <>
                branched from <Link to={sandboxPath(info.branched_from)}>{info.branched_from}</Link>
                <span aria-hidden="true">·</span>
              </>
            )}
            <code>{info.id}</code>
            <Copy text={info.id} label="Copy id" />
          </div>
        </div>
        {node && <ActionButtons target={{ kind: "snapshot", node }} />}
      </header>
      <div class="cards">
        <Card title="Machine">
          <Facts
            facts={[
              ["Image", info.image ?? "none"],
              ["Memory", mib(info.memory_mib)],
              ["CPUs", `${info.vcpus} × ${details.cpu}`],
              ["Disk", info.disk_mib === null ? "in memory" : mib(info.disk_mib)],
              ["Interpreters", info.kernels.join(", ") || "none"],
              ["Isolation of forks", details.isolation === "kvm" ? "KVM" : "emulated: not a security boundary"],
              ["Can be forked here", info.bootable ? "yes" : "no"],
              ["Description", visible(info.description ?? "none")],
            ]}
          />
        </Card>
        <Card title="What it stores">
          <Facts
            facts={[
              ["Memory on disk", `${bytes(details.memory_physical_bytes)} of ${bytes(details.memory_logical_bytes)}`],
              ["Device state", bytes(details.vmstate_bytes)],
              ["Disk layers", details.disk_layers === 0 ? "none" : `${details.disk_layers}, ${bytes(details.disk_own_bytes)} of its own`],
              ["Deltas to the base", String(info.depth)],
              ["Branch stored", info.delta_bytes === null ? "–" : bytes(info.delta_bytes)],
              ["Source stopped for", info.pause_us === null ? "–" : ms(info.pause_us / 1000)],
              ["Made", time(info.created_at_unix)],
              ["Waiting VMMs", String(info.pool)],
            ]}
          />
        </Card>
        <Card title="Lineage">
          <Facts
            facts={[
              [
                "Ancestors",
                details.ancestors.length === 0
                  ? "none: it is a base"
                  : details.ancestors.map((each) => <Link key={each} to={snapshotPath(each)}>{`${each} `}</Link>),
              ],
              [
                "Built on it",
                details.dependents.length === 0
                  ? "nothing"
                  : details.dependents.map((each) => <Link key={each} to={snapshotPath(each)}>{`${each} `}</Link>),
              ],
              [
                "Sandboxes",
                details.sandboxes.length === 0
                  ? "none"
                  : details.sandboxes.slice(0, 40).map((each) => <Link key={each} to={sandboxPath(each)}>{`${each} `}</Link>),
              ],
            ]}
          />
        </Card>
        {isCluster() && <Holders id={info.id} />}
        <Card title="On the command line">
          <Command line={commandLine("fork", info.tag)} />
          <Command line={commandLine("snapshot", "info", info.tag)} />
          <Command line={commandLine("pack", info.tag)} />
        </Card>
      </div>
    </main>
  );
}

/** Nodes that hold it; a fork elsewhere sends it there first */
function Holders({ id }: { id: string }): JSX.Element {
  const { value, error } = useLoaded(async (signal) => forkd.cluster({ signal }), [id], HOLDERS_MS);
  const holders = value?.nodes.flatMap(({ code, url, state, snapshots }) => {
    const held = snapshots.find((each) => each.id === id);
    return held ? [{ label: code ?? url ?? "", state, pool: held.pool }] : [];
  });
  return (
    <Card title="Nodes that hold it">
      <Problem text={error} />
      {holders?.length === 0 && <p class="dim">None that answers.</p>}
      {holders && holders.length > 0 && (
        <Facts
          facts={holders.map(({ label, state, pool }) => [
            label,
            <>
              <State state={state} />
              {pool > 0 && <span class="dim"> {count(pool, "waiting VMM")}</span>}
            </>,
          ])}
        />
      )}
      <Command line="forkd cluster status" />
      <Link to="/nodes">All nodes</Link>
    </Card>
  );
}

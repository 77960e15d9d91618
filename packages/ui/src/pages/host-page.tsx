// The daemon and its host: health, limits, settings, and the last hour.

import { useEffect, useRef, useState } from "preact/hooks";
import { forkd } from "../api.ts";
import { bytes, count, duration, mib, ms } from "../format.ts";
import { Card, Command, complain, Facts, Problem, useLoaded } from "../parts.tsx";
import { may } from "../session.ts";
import type { JSX } from "preact";
import type { Config, GarbageCollected, History, Status } from "forkd";

const REFRESH_MS = 10_000;

export function HostPage(): JSX.Element {
  const { value: status, error } = useLoaded(async (signal) => forkd.status({ signal }), [], REFRESH_MS);
  const { value: history } = useLoaded(async (signal) => forkd.history({ signal }), [], REFRESH_MS);
  const { value: config } = useLoaded(async (signal) => (may("operator") ? forkd.config({ signal }) : undefined), []);
  return (
    <main class="page">
      <h1>Host</h1>
      <Problem text={error} />
      {history && <LastHour history={history} />}
      <div class="cards">
        {status && <Health status={status} />}
        {status && <Limits status={status} />}
        {may("operator") && <Garbage />}
        {config && <Settings config={config} />}
      </div>
    </main>
  );
}

function LastHour({ history }: { history: History }): JSX.Element {
  const { samples, step_secs: step, bounds_ms: bounds } = history;
  const times = samples.map(({ time_unix }) => time_unix);
  const last = samples.at(-1);
  const saved = last ? Math.max(0, last.guest_bytes - last.private_bytes) : 0;
  return (
    <div class="plots">
      <Card title="Forks per second, last hour">
        <Plot label="Forks per second" unit="" data={[times, samples.map(({ forks }) => forks / step)]} color="--rail-0" />
      </Card>
      <Card title={`Memory saved by sharing: ${bytes(saved)} now`}>
        <Plot
          label="Memory saved by sharing, in MiB"
          unit="MiB"
          data={[times, samples.map(({ guest_bytes, private_bytes }) => Math.max(0, guest_bytes - private_bytes) / 1024 / 1024)]}
          color="--rail-1"
        />
      </Card>
      <Card title={`Time of a fork in ms: ${count(sum(history.fork_counts), "fork")}`}>
        <Histogram label="Forks by duration" bounds={bounds} counts={history.fork_counts} />
      </Card>
      <Card title={`Pause of a branch in ms: ${count(sum(history.pause_counts), "branch", "branches")}`}>
        <Histogram label="Branches by pause of the source" bounds={bounds} counts={history.pause_counts} />
      </Card>
    </div>
  );
}

/** The library is loaded with the first plot */
function Plot({ label, unit, data, color }: { label: string; unit: string; data: [number[], number[]]; color: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<{ setData: (data: [number[], number[]]) => void; close: () => void } | null>(null);
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    let isOver = false;
    void import("./plot.ts").then(({ draw }) => {
      if (isOver || !box.current) return;
      plot.current = draw(box.current, { unit, color, data: latest.current });
    });
    return () => {
      isOver = true;
      plot.current?.close();
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [data[0].at(-1)]);
  const peak = data[1].reduce((most, value) => Math.max(most, value), 0);
  return <div ref={box} style={{ height: "180px" }} role="img" aria-label={`${label}: at most ${peak.toFixed(1)} ${unit}`} />;
}

function Histogram({ label, bounds, counts }: { label: string; bounds: readonly number[]; counts: readonly number[] }): JSX.Element {
  const most = Math.max(1, ...counts);
  const names = [...bounds.map((bound) => `≤ ${ms(bound).replace(".0 ", " ")}`), "more"];
  const text = counts.map((each, at) => (each > 0 ? `${names[at]}: ${each}` : "")).filter(Boolean);
  return (
    <div class="bars" role="img" aria-label={`${label}. ${text.join(", ") || "None yet."}`}>
      {counts.map((each, at) => (
        <div key={at} title={`${names[at]}: ${each}`}>
          {each > 0 ? each : ""}
          <i style={{ height: `${(each / most) * 70}%` }} />
          {shortBound(bounds[at])}
        </div>
      ))}
    </div>
  );
}

function Health({ status }: { status: Status }): JSX.Element {
  return (
    <Card title="Daemon">
      <Facts
        facts={[
          ["Version", status.version],
          ["Runs for", duration(status.uptime_secs)],
          ["Engine", status.engine],
          ["Accelerator", `${status.accelerator}: ${status.accelerator_reason}`],
          ["Isolation", status.isolation === "kvm" ? "KVM" : "emulated: not a security boundary"],
          ["Confinement of VMMs", status.confinement === "namespaces" ? "namespaces" : `none: ${status.confinement_reason ?? ""}`],
          ["Address", status.bind ?? "none"],
          ["Store", <code key="home">{status.home}</code>],
        ]}
      />
      <Command line="forkd status" />
      <Command line="forkd doctor" />
    </Card>
  );
}

function Limits({ status }: { status: Status }): JSX.Element {
  const { limits, memory } = status;
  return (
    <Card title="Use and limits">
      <Facts
        facts={[
          ["Sandboxes", `${status.sandboxes} of at most ${limits.max_sandboxes}`],
          ["Snapshots, images", `${status.snapshots}, ${status.images}`],
          ["Memory committed", mib(memory.committed_mib)],
          ["Memory available", mib(memory.available_mib)],
          ["Kept free", mib(limits.min_free_mib)],
          ["Waiting VMMs", String(status.pool_waiting)],
          ["Branches in flight", `${status.branches_in_flight} of at most ${limits.branch_concurrency}`],
          ["Limits of a sandbox", status.sandbox_limits.applicable.join(", ") || `none: ${status.sandbox_limits.reason ?? ""}`],
        ]}
      />
    </Card>
  );
}

function Garbage(): JSX.Element {
  const [found, setFound] = useState<GarbageCollected | null>(null);
  const run = async (dryRun: boolean): Promise<void> => setFound(await forkd.gc({ dryRun }));
  return (
    <Card title="Unreferenced data">
      {found && (
        <p role="status">
          {count(found.removed.length, "object")}, {bytes(found.bytes)} {found.dry_run ? "can be removed." : "removed."}
        </p>
      )}
      <div class="actions">
        <button type="button" onClick={() => void run(true).catch(complain)}>
          Look
        </button>
        {found?.dry_run && found.removed.length > 0 && (
          <button type="button" class="danger" onClick={() => void run(false).catch(complain)}>
            Remove it
          </button>
        )}
      </div>
      <Command line="forkd gc --dry-run" />
    </Card>
  );
}

function Settings({ config }: { config: Config }): JSX.Element {
  const changed = Object.entries(config).filter(([, { source }]) => source !== "default");
  return (
    <Card title="Settings that are not the default">
      {changed.length === 0 ? (
        <p class="dim">All settings have their defaults.</p>
      ) : (
        <Facts facts={changed.map(([name, { value, source }]) => [name, `${String(value)} (${source})`])} />
      )}
      <Command line="forkd config" />
    </Card>
  );
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, each) => total + each, 0);
}

function shortBound(bound: number | undefined): string {
  return bound === undefined ? "∞" : bound < 1000 ? String(bound) : `${bound / 1000} s`;
}

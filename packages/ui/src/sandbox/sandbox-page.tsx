// One sandbox: its head with the actions, and a tab for each subject.

import { useEffect, useState } from "preact/hooks";
import { ActionButtons } from "../actions.tsx";
import { forkd } from "../api.ts";
import { visible } from "../format.ts";
import { findSandbox, recentEvents, tree } from "../live.ts";
import { Copy, Empty, Link, State, useLoaded } from "../parts.tsx";
import { sandboxPath, snapshotPath } from "../router.ts";
import { may } from "../session.ts";
import { Overview } from "./overview.tsx";
import type { ComponentType, JSX } from "preact";
import type { SandboxInfo, Scope } from "forkd";

export type TabProps = { sandbox: SandboxInfo };
type Tab = { name: string; label: string; scope: Scope; load: () => Promise<ComponentType<TabProps>> };

const TABS: readonly Tab[] = [
  { name: "terminal", label: "Terminal", scope: "exec", load: async () => (await import("./terminals.tsx")).Terminals },
  { name: "files", label: "Files", scope: "exec", load: async () => (await import("./files.tsx")).Files },
  { name: "processes", label: "Processes", scope: "exec", load: async () => (await import("./processes.tsx")).Processes },
  { name: "ports", label: "Ports", scope: "exec", load: async () => (await import("./ports.tsx")).Ports },
  { name: "network", label: "Network", scope: "read", load: async () => (await import("./network.tsx")).Network },
  { name: "logs", label: "Logs", scope: "read", load: async () => (await import("./logs.tsx")).Logs },
  { name: "events", label: "Events", scope: "read", load: async () => (await import("./sandbox-events.tsx")).SandboxEvents },
];

export function SandboxPage({ parts }: { parts: string[] }): JSX.Element {
  const [id = "", tabName] = parts;
  const found = findSandbox(id);
  // read again when the tree or an event says that it changed
  const changed = recentEvents.value.find(({ sandbox }) => sandbox === (found?.sandbox.id ?? id))?.id;
  const { value: sandbox, error } = useLoaded(async (signal) => forkd.getSandbox(id, { signal }), [id, changed, found?.sandbox.state]);
  if (!sandbox) {
    return (
      <main class="page" aria-busy={error === null}>
        <h1>{visible(id)}</h1>
        {error !== null && (
          <Empty title="There is no such sandbox">
            <p>{error}</p>
            <Link to="/">Back to the tree</Link>
          </Empty>
        )}
      </main>
    );
  }
  const isGone = tree.value !== null && !found;
  return (
    <main class={`page ${tabName === "terminal" ? "fill" : ""}`}>
      <header class="page-head">
        <div>
          <h1>
            {sandbox.name ?? sandbox.id}
            <State state={isGone ? "ended" : (found?.sandbox.state ?? sandbox.state)} />
          </h1>
          <div class="lineage">
            forked from <Link to={snapshotPath(sandbox.snapshot_tag)}>{sandbox.snapshot_tag}</Link>
            <span aria-hidden="true">·</span>
            <code>{sandbox.id}</code>
            <Copy text={sandbox.id} label="Copy id" />
          </div>
        </div>
        {found && <ActionButtons target={{ kind: "sandbox", sandbox: found.sandbox }} />}
      </header>
      <nav class="tabs" aria-label="Parts of the sandbox">
        <Link to={sandboxPath(id)} {...(tabName === undefined ? { "aria-current": "page" } : {})}>
          Overview
        </Link>
        {TABS.filter(({ scope }) => may(scope)).map(({ name, label }) => (
          <Link key={name} to={sandboxPath(id, name)} {...(tabName === name ? { "aria-current": "page" } : {})}>
            {label}
          </Link>
        ))}
      </nav>
      <Content key={`${sandbox.id}/${tabName}`} sandbox={sandbox} tabName={tabName} />
    </main>
  );
}

function Content({ sandbox, tabName }: TabProps & { tabName: string | undefined }): JSX.Element {
  const tab = TABS.find(({ name, scope }) => name === tabName && may(scope));
  const [Loaded, setLoaded] = useState<{ View: ComponentType<TabProps> } | null>(null);
  useEffect(() => void tab?.load().then((View) => setLoaded({ View })), [tab]);
  if (!tab) return <Overview sandbox={sandbox} />;
  return Loaded ? <Loaded.View sandbox={sandbox} /> : <div aria-busy="true" />;
}

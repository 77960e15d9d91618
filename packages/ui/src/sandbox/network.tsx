// Network policy of a sandbox, and its connections as they are allowed and refused.

import { useState } from "preact/hooks";
import { forkd } from "../api.ts";
import { bytes, commandLine, visible } from "../format.ts";
import { Ask, Card, Command, Facts, Field, Problem, say, Table, useLoaded } from "../parts.tsx";
import { may } from "../session.ts";
import type { JSX } from "preact";
import type { NetworkInfo, NetworkMode, SandboxInfo } from "forkd";

const REFRESH_MS = 2000;

export function Network({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const { value, error, reload } = useLoaded(async (signal) => forkd.getNetwork(sandbox.id, { signal }), [sandbox.id], REFRESH_MS);
  if (!value) return <Problem text={error} />;
  const limit = value.egress_limit_bytes;
  return (
    <div class="cards">
      <Card title="Policy">
        <Facts
          facts={[
            ["Mode", MODES[value.mode]],
            ["Allowed", value.allow.join(", ") || "no rules"],
            ...(value.deny?.length ? [["Denied", value.deny.join(", ")] as const] : []),
            ["Sent", `${bytes(value.bytes_up)}${limit === null ? "" : `, ${bytes(value.egress_used_bytes)} of at most ${bytes(limit)}`}`],
            ["Received", bytes(value.bytes_down)],
            ["Connections", `${value.connections_open} open, ${value.connections_total} in total, ${value.connections_refused} refused`],
          ]}
        />
        {may("exec") && <PolicyForm key={value.mode} sandbox={sandbox} now={value} onChanged={reload} />}
      </Card>
      <Card title="Decisions">
        <Table columns={["Destination", "Decision", { number: "Sent" }, { number: "Received" }]}>
          {value.recent.map((each, at) => (
            <tr key={at}>
              <td class="mono">
                {visible(each.name ?? each.ip ?? "")}
                {each.port === null ? "" : `:${each.port}`}
              </td>
              <td>
                <span class={each.decision === "allowed" ? "good" : "problem-text"}>{each.decision}</span>{" "}
                <small>{visible(each.reason)}</small>
              </td>
              <td class="number">{bytes(each.bytes_up)}</td>
              <td class="number">{bytes(each.bytes_down)}</td>
            </tr>
          ))}
        </Table>
        {value.recent.length === 0 && <p class="dim">The sandbox tried no connection yet.</p>}
      </Card>
    </div>
  );
}

const MODES: Record<NetworkMode, string> = {
  none: "none: no connection leaves the sandbox",
  allow: "allow: only what the rules name",
  open: "open: any public address",
};

function PolicyForm({ sandbox, now, onChanged }: { sandbox: SandboxInfo; now: NetworkInfo; onChanged: () => void }): JSX.Element {
  const [mode, setMode] = useState<NetworkMode>(now.mode);
  const [rules, setRules] = useState(now.allow.join("\n"));
  const allow = mode === "none" ? [] : rules.split(/\s+/).filter(Boolean);
  const before = { mode: now.mode, allow: now.allow };
  const run = async (): Promise<void> => {
    await forkd.setNetwork(sandbox.id, { mode, ...(allow.length > 0 ? { allow } : {}) });
    onChanged();
    say("The policy is in force.", {
      label: "Undo",
      run: async () => forkd.setNetwork(sandbox.id, { mode: before.mode, ...(before.allow.length > 0 ? { allow: before.allow } : {}) }),
    });
  };
  return (
    <Ask label="Set the policy" onSubmit={run}>
      <Field label="Mode">
        <select value={mode} onChange={(event) => setMode(event.currentTarget.value as NetworkMode)}>
          {Object.entries(MODES).map(([name, label]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </Field>
      {mode !== "none" && (
        <Field label="Rules" help="One per line: example.org, *.example.org:443, 10.1.2.0/24:5432">
          <textarea rows={4} value={rules} onInput={(event) => setRules(event.currentTarget.value)} />
        </Field>
      )}
      <Command line={commandLine("network", sandbox.name ?? sandbox.id, "--set", mode, ...allow.flatMap((rule) => ["--allow", rule]))} />
    </Ask>
  );
}

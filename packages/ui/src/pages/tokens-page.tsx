// Tokens for access over the network. A new value is shown once.

import { useState } from "preact/hooks";
import { forkd } from "../api.ts";
import { commandLine, time } from "../format.ts";
import { Ask, Card, Command, complain, Copy, Dialog, Empty, Field, Problem, say, Table, useLoaded } from "../parts.tsx";
import { login, may } from "../session.ts";
import type { JSX } from "preact";
import type { NewToken, Scope } from "forkd";

const SCOPES: Record<Scope, string> = {
  read: "read: look at everything of the project",
  exec: "exec: also fork, use and end sandboxes",
  admin: "admin: everything in the project",
  operator: "operator: every project, and the daemon",
};

export function TokensPage(): JSX.Element {
  const isAdmin = may("admin");
  return (
    <main class="page">
      <h1>Tokens</h1>
      {login.value.is === "in" && <p class="dim">Project {login.value.session.project}</p>}
      {isAdmin ? <Tokens /> : <Empty title="Tokens need the scope admin" />}
    </main>
  );
}

function Tokens(): JSX.Element {
  const { value: tokens, error, reload } = useLoaded(async (signal) => forkd.listTokens({ signal }), []);
  const [made, setMade] = useState<NewToken | null>(null);
  const rotate = async (name: string): Promise<void> => {
    setMade(await forkd.rotateToken(name));
    reload();
  };
  const revoke = async (name: string): Promise<void> => {
    if (!confirm(`Revoke ${name}? Its requests end at once.`)) return;
    await forkd.deleteToken(name);
    say(`The token ${name} is revoked.`);
    reload();
  };
  return (
    <div class="cards">
      <Card title="Known tokens">
        <Problem text={error} />
        {tokens?.length === 0 && <p class="dim">There is none. Programs on this machine need none; those on others do.</p>}
        {tokens && tokens.length > 0 && (
          <Table columns={["Name", "Project", "Scope", "Last used", "Expires", ""]}>
            {tokens.map(({ name, project, scope, last_used_unix, expires_at_unix, source }) => (
              <tr key={name}>
                <td>{name}</td>
                <td>{project}</td>
                <td>{scope}</td>
                <td>{last_used_unix === null ? "never" : time(last_used_unix)}</td>
                <td>{expires_at_unix === null ? "never" : time(expires_at_unix)}</td>
                <td class="buttons-cell">
                  {source === "created" && (
                    <>
                      <button type="button" class="quiet" onClick={() => void rotate(name).catch(complain)}>
                        Rotate
                      </button>
                      <button type="button" class="danger quiet" onClick={() => void revoke(name).catch(complain)}>
                        Revoke
                      </button>
                    </>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        )}
        <Command line="forkd token ls" />
      </Card>
      <NewTokenForm
        onMade={(token) => {
          setMade(token);
          reload();
        }}
      />
      {made && (
        <Dialog title={`Token ${made.name}`} onClose={() => setMade(null)}>
          <p>This is the only time that the value is shown. The daemon stores its hash.</p>
          <div class="command">
            <code>{made.token}</code>
            <Copy text={made.token} />
          </div>
          <footer class="buttons">
            <button type="button" class="primary" onClick={() => setMade(null)}>
              Done
            </button>
          </footer>
        </Dialog>
      )}
    </div>
  );
}

function NewTokenForm({ onMade }: { onMade: (token: NewToken) => void }): JSX.Element {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Scope>("exec");
  // a token may do at most what its maker may
  const offered = Object.entries(SCOPES).filter(([value]) => may(value as Scope));
  const run = async (): Promise<void> => {
    onMade(await forkd.createToken(name, { scope }));
    setName("");
  };
  return (
    <Card title="New token">
      <Ask label="Make it" onSubmit={run}>
        <Field label="Name">
          <input
            required
            value={name}
            pattern="[A-Za-z0-9_][A-Za-z0-9._\-]{0,63}"
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </Field>
        <Field label="Scope">
          <select value={scope} onChange={(event) => setScope(event.currentTarget.value as Scope)}>
            {offered.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </Field>
        <Command line={commandLine("token", "create", name || "NAME", "--scope", scope)} />
      </Ask>
    </Card>
  );
}

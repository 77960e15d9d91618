// What can be done with a sandbox or a snapshot. Each action says what it costs, and the command line that does the same.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { forkd } from "./api.ts";
import { commandLine, count, mib, ms } from "./format.ts";
import { tree, usage } from "./live.ts";
import { Ask, Command, Dialog, Field, say } from "./parts.tsx";
import { go, route, snapshotPath } from "./router.ts";
import { may } from "./session.ts";
import type { JSX } from "preact";
import type { Scope, TreeNode, TreeSandbox } from "forkd";

export type Target = { kind: "sandbox"; sandbox: TreeSandbox } | { kind: "snapshot"; node: TreeNode };

export type ActionName = "fork" | "branch" | "suspend" | "resume" | "rename" | "extend" | "kill" | "remove";

type Known = {
  name: ActionName;
  label: string;
  key: string;
  scope: Scope;
  isDanger?: boolean;
  fits: (target: Target) => boolean;
  Form: (props: { target: Target }) => JSX.Element;
};

const opened = signal<{ action: Known; target: Target } | null>(null);

const isSandboxIn =
  (...states: string[]) =>
  (target: Target): boolean =>
    target.kind === "sandbox" && states.includes(target.sandbox.state);

/** Comparing, merging, promoting and rolling back will be further entries */
const ACTIONS: readonly Known[] = [
  { name: "fork", label: "Fork", key: "f", scope: "exec", fits: canFork, Form: ForkForm },
  { name: "branch", label: "Branch", key: "b", scope: "exec", fits: isSandboxIn("running", "paused"), Form: BranchForm },
  { name: "suspend", label: "Suspend", key: "s", scope: "exec", fits: isSandboxIn("running", "paused"), Form: SuspendForm },
  { name: "resume", label: "Resume", key: "r", scope: "exec", fits: isSandboxIn("suspended", "paused"), Form: ResumeForm },
  {
    name: "rename",
    label: "Rename",
    key: "n",
    scope: "exec",
    fits: (target) => target.kind === "sandbox" || target.node.tag !== null,
    Form: RenameForm,
  },
  { name: "extend", label: "Extend", key: "e", scope: "exec", fits: isSandboxIn("running", "paused", "suspended"), Form: ExtendForm },
  { name: "kill", label: "Kill", key: "x", scope: "exec", isDanger: true, fits: (target) => target.kind === "sandbox", Form: KillForm },
  {
    name: "remove",
    label: "Remove",
    key: "x",
    scope: "admin",
    isDanger: true,
    fits: (target) => target.kind === "snapshot" && target.node.tag !== null,
    Form: RemoveForm,
  },
];

export function actionsFor(target: Target): Known[] {
  return ACTIONS.filter((action) => action.fits(target) && may(scopeOf(action, target)));
}

export function openAction(action: Known, target: Target): void {
  opened.value = { action, target };
}

export function ActionButtons({ target }: { target: Target }): JSX.Element {
  return (
    <div class="actions">
      {actionsFor(target).map((action) => (
        <button
          key={action.name}
          type="button"
          class={action.isDanger ? "danger" : action.name === "fork" ? "primary" : ""}
          onClick={() => openAction(action, target)}
        >
          {action.label}
        </button>
      ))}
    </div>
  );
}

export function ActionDialog(): JSX.Element | null {
  const now = opened.value;
  if (!now) return null;
  const { action, target } = now;
  // The event of a dialog that was closed can arrive after the key that opened the next one.
  const onClose = (): void => {
    if (opened.value === now) close();
  };
  return (
    <Dialog key={action.name} title={`${action.label} ${nameOf(target)}`} onClose={onClose}>
      <action.Form target={target} />
    </Dialog>
  );
}

function close(): void {
  opened.value = null;
}

function scopeOf(action: Known, target: Target): Scope {
  return action.name === "rename" && target.kind === "snapshot" ? "admin" : action.scope;
}

function canFork(target: Target): boolean {
  return target.kind === "sandbox"
    ? ["running", "paused"].includes(target.sandbox.state)
    : target.node.tag !== null && target.node.status === "ready";
}

function nameOf(target: Target): string {
  return target.kind === "sandbox" ? (target.sandbox.name ?? target.sandbox.id) : (target.node.tag ?? target.node.id);
}

function ForkForm({ target }: { target: Target }): JSX.Element {
  const [n, setN] = useState(3);
  const [name, setName] = useState("");
  const [ttl, setTtl] = useState("");
  const source = nameOf(target);
  const memory = target.kind === "sandbox" ? target.sandbox.memory_mib : target.node.memory_mib;
  const isNamed = target.kind === "snapshot" && n === 1 && name !== "";
  const line = commandLine(
    "fork",
    ...(target.kind === "sandbox" ? ["--from-sandbox", source] : [source]),
    "-n",
    n,
    ...(isNamed ? ["--name", name] : []),
    ...(ttl === "" ? [] : ["--ttl", ttl]),
  );
  const run = async (): Promise<void> => {
    const opts = { n, ...(ttl === "" ? {} : { ttlSecs: secondsOf(ttl) }) };
    const began = performance.now();
    const made =
      target.kind === "sandbox"
        ? (await forkd.forkSandbox(target.sandbox.id, opts)).sandboxes
        : await forkd.spawnSandboxes(source, { ...opts, ...(isNamed ? { name } : {}) });
    close();
    say(`${count(made.length, "fork")} of ${source} in ${ms(performance.now() - began)}.`, {
      label: "Undo",
      run: async () => Promise.all(made.map(async ({ id }) => forkd.killSandbox(id))),
    });
  };
  return (
    <Ask label={`Fork ${n}`} onSubmit={run} onClose={close}>
      <p class="cost">
        {target.kind === "sandbox" && "The sandbox stops for some milliseconds, then continues. "}
        Forks share the memory of {source}: each begins with a few MiB of its own, and can grow to {mib(memory)}.
      </p>
      <Field label="How many">
        <input
          type="number"
          min={1}
          max={1000}
          value={n}
          autofocus
          onInput={(event) => setN(Math.max(1, Math.min(1000, event.currentTarget.valueAsNumber || 1)))}
        />
      </Field>
      {target.kind === "snapshot" && n === 1 && (
        <Field label="Name" help="Optional">
          <input value={name} pattern="[A-Za-z0-9_][A-Za-z0-9._\-]{0,63}" onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
      )}
      <Field label="Time to live" help="10m, 2h or 1d; empty: until it is ended">
        <input value={ttl} pattern="\d+[smhd]?" onInput={(event) => setTtl(event.currentTarget.value)} />
      </Field>
      <Command line={line} />
    </Ask>
  );
}

function BranchForm({ target }: { target: Target }): JSX.Element {
  const [tag, setTag] = useState("");
  const source = nameOf(target);
  const run = async (): Promise<void> => {
    const made = await forkd.branchSandbox(idOf(target), tag === "" ? {} : { tag });
    close();
    say(
      `Branch ${made.tag}: ${source} stopped for ${ms((made.pause_us ?? 0) / 1000)}.`,
      may("admin") ? { label: "Undo", run: async () => forkd.deleteSnapshot(made.tag) } : undefined,
    );
  };
  const own = target.kind === "sandbox" ? usage.value.get(target.sandbox.id) : undefined;
  return (
    <Ask label="Branch" onSubmit={run} onClose={close}>
      <p class="cost">
        A snapshot of the running sandbox, which stops for some milliseconds and continues. It stores the pages that changed since the last
        branch
        {own ? `: at most ${mib(own.privateBytes / 1024 / 1024)}` : ""}.
      </p>
      <Field label="Tag" help="Optional: a name for the snapshot">
        <input value={tag} autofocus pattern="[A-Za-z0-9_][A-Za-z0-9._\-]{0,63}" onInput={(event) => setTag(event.currentTarget.value)} />
      </Field>
      <Command line={commandLine("branch", source, ...(tag === "" ? [] : ["--tag", tag]))} />
    </Ask>
  );
}

function SuspendForm({ target }: { target: Target }): JSX.Element {
  const run = async (): Promise<void> => {
    await forkd.suspendSandbox(idOf(target));
    close();
    say(`${nameOf(target)} is suspended.`, { label: "Resume", run: async () => forkd.resumeSandbox(idOf(target)) });
  };
  return (
    <Ask label="Suspend" onSubmit={run} onClose={close}>
      <p class="cost">Its memory and disk are saved and its resources freed. Id and name stay; Resume continues where it was.</p>
      <Command line={commandLine("suspend", nameOf(target))} />
    </Ask>
  );
}

function ResumeForm({ target }: { target: Target }): JSX.Element {
  const run = async (): Promise<void> => {
    await forkd.resumeSandbox(idOf(target));
    close();
    say(`${nameOf(target)} runs again.`, { label: "Suspend", run: async () => forkd.suspendSandbox(idOf(target)) });
  };
  return (
    <Ask label="Resume" onSubmit={run} onClose={close}>
      <p class="cost">It continues where it was, with the present time.</p>
      <Command line={commandLine("resume", nameOf(target))} />
    </Ask>
  );
}

function RenameForm({ target }: { target: Target }): JSX.Element {
  const before = target.kind === "sandbox" ? target.sandbox.name : target.node.tag;
  const [name, setName] = useState(before ?? "");
  const rename = async (from: string, to: string | null): Promise<void> => {
    if (target.kind === "sandbox") await forkd.updateSandbox(target.sandbox.id, { name: to });
    else await forkd.updateSnapshot(from, { tag: to ?? "" });
  };
  const run = async (): Promise<void> => {
    await rename(nameOf(target), name);
    close();
    if (target.kind === "snapshot" && route.value.startsWith("/snapshots/")) go(snapshotPath(name));
    say(`Renamed to ${name}.`, { label: "Undo", run: async () => rename(name, before) });
  };
  const words = target.kind === "sandbox" ? ["rename"] : ["snapshot", "rename"];
  return (
    <Ask label="Rename" onSubmit={run} onClose={close}>
      <Field label={target.kind === "sandbox" ? "Name" : "Tag"} help="1 to 64 letters, digits, '.', '_' or '-'">
        <input
          value={name}
          required
          autofocus
          pattern="[A-Za-z0-9_][A-Za-z0-9._\-]{0,63}"
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </Field>
      <Command line={commandLine(...words, nameOf(target), name || "NAME")} />
    </Ask>
  );
}

function ExtendForm({ target }: { target: Target }): JSX.Element {
  const [ttl, setTtl] = useState("1h");
  const before = target.kind === "sandbox" ? target.sandbox.expires_at_unix : null;
  const run = async (): Promise<void> => {
    await forkd.updateSandbox(idOf(target), { ttlSecs: ttl === "never" ? null : secondsOf(ttl) });
    close();
    const undo = async (): Promise<unknown> =>
      forkd.updateSandbox(idOf(target), { ttlSecs: before === null ? null : Math.max(1, before - Math.floor(Date.now() / 1000)) });
    say(ttl === "never" ? `${nameOf(target)} no longer expires.` : `${nameOf(target)} ends in ${ttl}.`, { label: "Undo", run: undo });
  };
  return (
    <Ask label="Extend" onSubmit={run} onClose={close}>
      <p class="cost">{before === null ? "It has no time limit now." : `It ends at ${new Date(before * 1000).toLocaleString()} now.`}</p>
      <Field label="Time to live from now" help="10m, 2h, 1d or never">
        <input value={ttl} required autofocus pattern="\d+[smhd]?|never" onInput={(event) => setTtl(event.currentTarget.value)} />
      </Field>
      <Command line={commandLine("extend", nameOf(target), "--ttl", ttl || "1h")} />
    </Ask>
  );
}

function KillForm({ target }: { target: Target }): JSX.Element {
  const [keeps, setKeeps] = useState(false);
  const canKeep = isSandboxIn("running", "paused")(target);
  const run = async (): Promise<void> => {
    const kept = keeps && canKeep ? await forkd.branchSandbox(idOf(target)) : undefined;
    await forkd.killSandbox(idOf(target));
    close();
    if (route.value.startsWith("/sandboxes/")) go("/");
    say(
      kept ? `${nameOf(target)} has ended; its state is ${kept.tag}.` : `${nameOf(target)} has ended.`,
      kept ? { label: "Fork it again", run: async () => forkd.spawnSandboxes(kept.tag) } : undefined,
    );
  };
  const line = commandLine("kill", nameOf(target));
  return (
    <Ask label="Kill" isDanger onSubmit={run} onClose={close}>
      <p class="cost">Its memory and disk are gone. There is no undo, unless a branch keeps its state.</p>
      {canKeep && (
        <label class="check">
          <input type="checkbox" checked={keeps} onChange={(event) => setKeeps(event.currentTarget.checked)} /> Branch it first
        </label>
      )}
      <Command line={keeps ? `${commandLine("branch", nameOf(target))} && ${line}` : line} />
    </Ask>
  );
}

function RemoveForm({ target }: { target: Target }): JSX.Element {
  const below = target.kind === "snapshot" ? target.node.snapshots.length + target.node.sandboxes.length : 0;
  const run = async (): Promise<void> => {
    await forkd.deleteSnapshot(nameOf(target), below > 0 ? { force: true } : {});
    close();
    if (route.value.startsWith("/snapshots/")) go("/");
    say(`${nameOf(target)} is removed.`);
  };
  return (
    <Ask label="Remove" isDanger onSubmit={run} onClose={close}>
      <p class="cost">
        {below > 0
          ? `Its tag goes. Its data stays while ${count(below, "snapshot or sandbox", "snapshots and sandboxes")} below need it.`
          : "Its memory and disk files are deleted. There is no undo."}
      </p>
      <Command line={commandLine("snapshot", "rm", nameOf(target), ...(below > 0 ? ["--force"] : []))} />
    </Ask>
  );
}

function idOf(target: Target): string {
  return target.kind === "sandbox" ? target.sandbox.id : target.node.id;
}

function secondsOf(text: string): number {
  const [, number = "0", unit = "s"] = /^(\d+)([smhd]?)$/.exec(text) ?? [];
  return Number(number) * ({ s: 1, m: 60, h: 3600, d: 86_400 }[unit] ?? 1);
}

/** The node of a snapshot by tag or id */
export function findSnapshot(tagOrId: string): TreeNode | null {
  const open = [...(tree.value?.roots ?? [])];
  for (let node = open.pop(); node; node = open.pop()) {
    if (node.tag === tagOrId || node.id === tagOrId) return node;
    open.push(...node.snapshots);
  }
  return null;
}

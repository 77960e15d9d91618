// Projects with their limits and what they use: of an operator all, of others their own.

import { useState } from "preact/hooks";
import { forkd, forkdIn } from "../api.ts";
import { commandLine } from "../format.ts";
import { Ask, Card, Command, Dialog, Empty, Field, Meter, Problem, say, useLoaded } from "../parts.tsx";
import { login, may } from "../session.ts";
import { changesOf, flagsOf, QUOTA_KINDS, usesOf, type QuotaKind } from "./quota-kinds.ts";
import type { JSX } from "preact";
import type { ProjectInfo, Quota } from "forkd";

const REFRESH_MS = 10_000;
/** The use of each is a request of its own, in a cluster to all nodes */
const SHOWN = 20;
const DEFAULT = "default";

type Typed = Partial<Record<keyof Quota, string>>;
type Asking = "set" | "remove";

export function ProjectsPage(): JSX.Element {
  const own = login.value.is === "in" ? login.value.session.project : DEFAULT;
  return (
    <main class="page">
      <h1>{may("operator") ? "Projects" : "Project"}</h1>
      {may("operator") ? <AllProjects /> : <div class="cards">{<ProjectCard name={own} own={own} />}</div>}
    </main>
  );
}

function AllProjects(): JSX.Element {
  const { value: projects, error, reload } = useLoaded(async (signal) => forkd.listProjects({ signal }), []);
  const [search, setSearch] = useState("");
  const [shown, setShown] = useState(SHOWN);
  const own = login.value.is === "in" ? login.value.session.project : DEFAULT;
  const found = projects?.filter(({ name }) => name.toLowerCase().includes(search.toLowerCase())) ?? [];
  return (
    <>
      <Problem text={error} />
      {projects && projects.length > SHOWN && (
        <Field label="Search">
          <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </Field>
      )}
      {projects && found.length === 0 && <Empty title="No project has this name" />}
      <div class="cards">
        {found.slice(0, shown).map((project) => (
          <ProjectCard key={project.name} name={project.name} own={own} project={project} reload={reload} />
        ))}
      </div>
      {found.length > shown && (
        <button type="button" onClick={() => setShown(shown + SHOWN)}>
          Show more
        </button>
      )}
      <NewProject onMade={reload} />
      <Command line="forkd project ls" />
    </>
  );
}

/** `project`: absent for those who see only their own */
function ProjectCard(props: { name: string; own: string; project?: ProjectInfo; reload?: () => void }): JSX.Element {
  const { name, own, project, reload } = props;
  const [asking, setAsking] = useState<Asking | null>(null);
  const { value: quota, error } = useLoaded(
    async (signal) => (name === own ? forkd : forkdIn(name)).quota({ signal }),
    [name, JSON.stringify(project?.quota)],
    REFRESH_MS,
  );
  const close = (): void => setAsking(null);
  return (
    <Card
      title={name}
      actions={
        project && (
          <div class="actions">
            <button type="button" onClick={() => setAsking("set")} aria-label={`Set limits of ${name}`}>
              Set limits
            </button>
            {name !== DEFAULT && (
              <button type="button" class="danger" onClick={() => setAsking("remove")} aria-label={`Remove ${name}`}>
                Remove
              </button>
            )}
          </div>
        )
      }
    >
      <Problem text={error} />
      {quota && (
        <dl class="uses">
          {usesOf(quota).map(({ key, label, text, percent }) => (
            <div key={key}>
              <dt>{label}</dt>
              <dd>
                {text}
                {percent === null ? (
                  <span class="dim"> no limit</span>
                ) : (
                  <Meter label={`${label} of ${name}`} percent={percent} text={text} />
                )}
              </dd>
            </div>
          ))}
        </dl>
      )}
      <Command line={name === own ? "forkd quota" : commandLine("--project", name, "quota")} />
      {asking === "set" && project && <SetLimits project={project} onClose={close} onDone={() => reload?.()} />}
      {asking === "remove" && <RemoveProject name={name} onClose={close} onDone={() => reload?.()} />}
    </Card>
  );
}

function SetLimits({ project, onClose, onDone }: { project: ProjectInfo; onClose: () => void; onDone: () => void }): JSX.Element {
  const { name, quota } = project;
  const [typed, setTyped] = useState<Typed>({});
  const changes = changesOf(quota, typed);
  const run = async (): Promise<void> => {
    await forkd.updateProject(name, optionsOf(changes));
    onClose();
    onDone();
    const before = new Map([...changes.keys()].map((kind) => [kind, quota[kind.key]]));
    const undo = async (): Promise<void> => {
      await forkd.updateProject(name, optionsOf(before));
      onDone();
    };
    say(`The limits of ${name} are changed.`, { label: "Undo", run: undo });
  };
  return (
    <Dialog title={`Limits of ${name}`} onClose={onClose}>
      <Ask label="Set" onSubmit={run} onClose={onClose}>
        <p class="cost">Empty: no limit. What exceeds a lower limit stays; nothing is added until there is room.</p>
        <Limits limits={quota} typed={typed} onTyped={setTyped} />
        <Command line={commandLine("project", "set", name, ...(changes.size === 0 ? ["--sandboxes", "20"] : flagsOf(changes)))} />
      </Ask>
    </Dialog>
  );
}

function Limits(props: { limits: Quota | null; typed: Typed; onTyped: (typed: Typed) => void }): JSX.Element {
  const { limits, typed, onTyped } = props;
  return (
    <div class="limits">
      {QUOTA_KINDS.map(({ key, label, flag }) => (
        <Field key={key} label={/_(mib|bytes)$/.test(key) ? `${label} (${key.endsWith("mib") ? "MiB" : "bytes"})` : label}>
          <input
            type="number"
            min={0}
            step={1}
            name={flag}
            value={typed[key] ?? limits?.[key] ?? ""}
            onInput={(event) => onTyped({ ...typed, [key]: event.currentTarget.value })}
          />
        </Field>
      ))}
    </div>
  );
}

function RemoveProject({ name, onClose, onDone }: { name: string; onClose: () => void; onDone: () => void }): JSX.Element {
  const run = async (): Promise<void> => {
    await forkd.deleteProject(name);
    onClose();
    onDone();
    say(`The project ${name} is removed.`, { label: "Undo", run: async () => forkd.createProject(name).then(onDone) });
  };
  return (
    <Dialog title={`Remove ${name}`} onClose={onClose}>
      <Ask label="Remove" isDanger onSubmit={run} onClose={onClose}>
        <p class="cost">This is refused while the project owns anything: tokens, sandboxes, snapshots, images or workspaces.</p>
        <Command line={commandLine("project", "rm", name)} />
      </Ask>
    </Dialog>
  );
}

function NewProject({ onMade }: { onMade: () => void }): JSX.Element {
  const [name, setName] = useState("");
  const run = async (): Promise<void> => {
    await forkd.createProject(name);
    say(`The project ${name} is made. Give it a token on the command line: forkd token create NAME --project ${name}`);
    setName("");
    onMade();
  };
  return (
    <Card title="New project">
      <Ask label="Make it" onSubmit={run}>
        <Field label="Name" help="It has no limits at first">
          <input
            required
            value={name}
            pattern="[A-Za-z0-9_][A-Za-z0-9._\-]{0,63}"
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </Field>
        <Command line={commandLine("project", "create", name || "NAME")} />
      </Ask>
    </Card>
  );
}

/** Names of the SDK's options */
function optionsOf(changes: ReadonlyMap<QuotaKind, number | null>): Parameters<typeof forkd.updateProject>[1] {
  return Object.fromEntries(
    [...changes].map(([{ key }, value]) => [key.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()), value]),
  );
}

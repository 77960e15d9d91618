// The dashboard: login, navigation, and the page of the address.

import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { ActionDialog } from "./actions.tsx";
import { isReachable } from "./api.ts";
import { refreshSoon, startLive } from "./live.ts";
import { Command, Link, Notices } from "./parts.tsx";
import { route, segments } from "./router.ts";
import { isCluster, login, logIn, logOut, wasLoggedIn } from "./session.ts";
import { TreePage } from "./tree/tree-page.tsx";
import type { ComponentType, JSX } from "preact";

type Page = ComponentType<{ parts: string[] }>;

/** Pages beside the tree are loaded when they are opened */
const PAGES: Record<string, () => Promise<Page>> = {
  sandboxes: async () => (await import("./sandbox/sandbox-page.tsx")).SandboxPage,
  snapshots: async () => (await import("./pages/snapshot-page.tsx")).SnapshotPage,
  images: async () => (await import("./pages/images-page.tsx")).ImagesPage,
  recipes: async () => (await import("./pages/recipes-page.tsx")).RecipesPage,
  hub: async () => (await import("./pages/hub-page.tsx")).HubPage,
  events: async () => (await import("./pages/events-page.tsx")).EventsPage,
  projects: async () => (await import("./pages/projects-page.tsx")).ProjectsPage,
  nodes: async () => (await import("./pages/nodes-page.tsx")).NodesPage,
  tokens: async () => (await import("./pages/tokens-page.tsx")).TokensPage,
  host: async () => (await import("./pages/host-page.tsx")).HostPage,
};

const NAVIGATION: [path: string, label: string, icon: string][] = [
  ["/", "Tree", "M6 3v18M6 8h8a3 3 0 0 1 3 3v1M6 15h6"],
  ["/images", "Images", "M4 7l8-4 8 4-8 4zM4 12l8 4 8-4M4 17l8 4 8-4"],
  ["/recipes", "Recipes", "M6 3h9l4 4v14H6zM9 12h7M9 16h7"],
  ["/hub", "Hub", "M12 4v11M8 11l4 4 4-4M5 20h14"],
  ["/events", "Events", "M3 12h4l3-8 4 16 3-8h4"],
  ["/projects", "Projects", "M3 7h7l2 2h9v10H3z"],
  ["/nodes", "Nodes", "M9 4h6v5H9zM3 15h6v5H3zM15 15h6v5h-6zM12 9v3M6 15v-3h12v3"],
  ["/tokens", "Tokens", "M15 9a4 4 0 1 0-4 4l-7 7v-3M8 16l2 2"],
  ["/host", "Host", "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01"],
];

const loaded = signal<{ name: string; Page: Page } | null>(null);

function App(): JSX.Element {
  const now = login.value;
  if (now.is === "asking") return <main class="page" aria-busy="true" />;
  if (now.is === "out") return <LoggedOut why={now.why} />;
  return <Inside />;
}

function Inside(): JSX.Element {
  useEffect(startLive, []);
  return (
    <>
      <Navigation />
      <CurrentPage />
      {!isReachable.value && (
        <p class="away" role="alert">
          The daemon does not answer. The page shows what it last knew, and tries again.
        </p>
      )}
      <ActionDialog />
      <Notices />
    </>
  );
}

function CurrentPage(): JSX.Element {
  const [name = "", ...parts] = route.value && segments();
  const load = PAGES[name];
  useEffect(() => {
    document.title = name === "" ? "forkd" : `${parts[0] ?? name} · forkd`;
    if (load && loaded.peek()?.name !== name) void load().then((Page) => (loaded.value = { name, Page }));
  }, [name, parts[0]]);
  if (!load) return <TreePage />;
  const now = loaded.value;
  return now?.name === name ? <now.Page parts={parts} /> : <main class="page" aria-busy="true" />;
}

function Navigation(): JSX.Element {
  const here = `/${segments()[0] ?? ""}`;
  const state = login.value;
  return (
    <nav class="navigation" aria-label="Pages">
      <Link to="/" class="brand">
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <path d="M7 4v16M7 13c0-5 10-2 10-8" />
        </svg>
        forkd
      </Link>
      {NAVIGATION.filter(([path]) => path !== "/nodes" || isCluster()).map(([path, label, icon]) => {
        const isHere = here === path || (path === "/" && /^\/(sandboxes|snapshots)/.test(here));
        return (
          <Link key={path} to={path} {...(isHere ? { "aria-current": "page" } : {})}>
            <svg viewBox="0 0 24 24" aria-hidden="true">
              <path d={icon} />
            </svg>
            {label}
          </Link>
        );
      })}
      {state.is === "in" && (
        <div class="who">
          <span>
            {state.session.principal} <small>{state.session.scope}</small>
          </span>
          <button type="button" class="quiet" onClick={() => void logOut()}>
            Log out
          </button>
        </div>
      )}
    </nav>
  );
}

function LoggedOut({ why }: { why: string }): JSX.Element {
  return (
    <main class="page first-use">
      <h1>forkd</h1>
      {why !== "" && (
        <p class="problem" role="alert">
          {why}
        </p>
      )}
      <p>This browser is not logged in. On the daemon’s machine, or where FORKD_URL and FORKD_TOKEN name the daemon, run:</p>
      <Command line="forkd ui" />
      <p class="dim">It prints a link that works once.</p>
    </main>
  );
}

// the tree is read while the daemon checks the session
if (wasLoggedIn()) refreshSoon();
void logIn();
const place = document.querySelector("#app");
if (place) render(<App />, place);

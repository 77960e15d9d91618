// Rooms of each package and their order. A room is a folder of src/ or a file directly in src/. It may import only
// rooms before it in the list. Type imports count, because they couple rooms as firmly as values.

import { dirname, join, normalize } from "node:path";

/** Rooms in one list do not import each other; folders joined by "+" are one room */
type Entry = string | readonly string[];

export type Package = {
  root: string;
  /** lowest first; without it any file may import any other */
  rooms?: readonly Entry[];
  /** allowed imports from our other packages: whole specifiers, or prefixes that end with "/" */
  others: readonly string[];
  /** the same for rooms with fewer allowed imports than the rest of the package */
  narrow?: Readonly<Record<string, readonly string[]>>;
};

export type Source = { path: string; imports: readonly string[] };

const OURS = /^(?:@forkd\/|forkd(?:-mcp)?(?:\/|$))/;
const IMPORT = /^(?:import|export)\s[^;"']*?from\s+"([^"]+)"|^import\s+"([^"]+)"|\bimport\(\s*"([^"]+)"\s*\)/gm;

/** Errors, and helpers that are independent of VMs */
const BASICS = ["@forkd/runtime/errors", "@forkd/runtime/version", "@forkd/runtime/util/"];

export const PACKAGES: readonly Package[] = [
  {
    root: "packages/runtime/src",
    others: [],
    rooms: [
      ["errors.ts", "version.ts"],
      "util",
      "paths.ts",
      "home.ts",
      "host",
      "archive",
      "oci",
      "disk",
      "warden",
      "vmm",
      "agent",
      ["egress", "share"],
      "snapshot",
      ["image", "guest-kernel"],
      "probe",
      "sandbox",
      ["host-support.ts", "work-dirs.ts"],
      "runtime.ts",
      "pack",
      "hub",
      "doctor",
      "index.ts",
    ],
  },
  {
    root: "packages/daemon/src",
    others: ["@forkd/runtime/"],
    narrow: {
      // schemas and tables do not depend on the code that uses them
      api: [...BASICS, "@forkd/runtime/egress/policy"],
      cluster: [...BASICS],
      store: [...BASICS, "@forkd/runtime/egress/policy", "@forkd/runtime/host/free-space"],
      // front ends do not depend on VMs: they call the service
      streams: [...BASICS],
      dispatch: [...BASICS],
      rest: [...BASICS],
      ui: [...BASICS],
      e2b: [...BASICS],
      proxy: [...BASICS],
    },
    rooms: [
      "settings.ts",
      "api",
      "config.ts",
      "cluster",
      "store",
      "observe",
      "service",
      "recipe",
      "streams",
      "dispatch",
      ["rest", "ui", "e2b", "proxy"],
      "daemon.ts",
      "main.ts",
      "index.ts",
    ],
  },
  {
    root: "packages/gateway/src",
    others: ["@forkd/runtime/", "@forkd/daemon/"],
    // placement runs in the simulation too: data in, decision out
    narrow: { placement: ["@forkd/runtime/errors"] },
    rooms: ["placement", "options.ts", "listen.ts", "state", "nodes", "kubernetes", "agents", "serve", "gateway.ts", "index.ts"],
  },
  { root: "packages/sdk/src", others: [] },
  { root: "packages/ui/src", others: ["forkd"] },
  { root: "packages/mcp/src", others: ["forkd", "forkd/"] },
  {
    root: "packages/cli/src",
    others: [
      "forkd",
      "forkd/",
      "forkd-mcp",
      "forkd-mcp/",
      "@forkd/bench",
      "@forkd/daemon",
      "@forkd/daemon/settings",
      "@forkd/daemon/observe/log",
      "@forkd/gateway",
      "@forkd/runtime",
      "@forkd/runtime/host/confined",
      "@forkd/runtime/paths",
      "@forkd/runtime/util/not-found",
    ],
  },
];

export function importsIn(text: string): string[] {
  return [...text.matchAll(IMPORT)].map(([, from, bare, lazy]) => from ?? bare ?? lazy ?? "");
}

/** One line per import that breaks a rule, and per file whose room is not listed */
export function roomProblems(pkg: Package, sources: readonly Source[]): string[] {
  const places = new Map((pkg.rooms ?? []).flatMap((entry, at) => [entry].flat().map((room) => [room, at] as const)));
  return sources.flatMap(({ path, imports }) => {
    const room = roomOf(pkg, path);
    if (pkg.rooms && !places.has(room)) return [`${path}: ${room} is not in the list of rooms`];
    const seen = pkg.narrow?.[room] ?? pkg.others;
    return imports.flatMap((specifier) => {
      const problem = specifier.startsWith(".") ? inside(pkg, places, path, specifier) : outside(seen, specifier);
      return problem === undefined ? [] : [`${path}: imports ${specifier}, ${problem}`];
    });
  });
}

function inside({ root, ...pkg }: Package, places: ReadonlyMap<string, number>, path: string, specifier: string): string | undefined {
  const target = normalize(join(dirname(path), specifier));
  if (target === join(dirname(root), "package.json")) return undefined;
  if (!target.startsWith(`${root}/`)) return `which is not in ${root}`;
  const [from, to] = [roomOf({ root, ...pkg }, path), roomOf({ root, ...pkg }, target)];
  if (!pkg.rooms || from === to) return undefined;
  const [low, high] = [places.get(to) ?? Infinity, places.get(from) ?? -Infinity];
  if (low < high) return undefined;
  return low === high ? `but ${from} and ${to} stand side by side` : `but ${to} comes after ${from}`;
}

function outside(seen: readonly string[], specifier: string): string | undefined {
  if (!OURS.test(specifier)) return undefined;
  const isSeen = seen.some((one) => (one.endsWith("/") ? specifier.startsWith(one) : specifier === one));
  return isSeen ? undefined : "which this room does not see";
}

function roomOf({ root, rooms = [] }: Package, path: string): string {
  const name = path.slice(root.length + 1).split("/")[0] ?? "";
  return rooms.flat().find((room) => room.split("+").includes(name)) ?? name;
}

/**
 * One line per import cycle between folders inside a room. Files directly in the room may be above or below its folders
 */
export function folderCycles({ root }: Package, sources: readonly Source[]): string[] {
  const isInner = (folder: string): boolean => folder.startsWith(`${root}/`) && folder.slice(root.length + 1).includes("/");
  const edges = new Map<string, Set<string>>();
  for (const { path, imports } of sources) {
    const from = dirname(path);
    if (!isInner(from)) continue;
    const targets = imports.filter((specifier) => specifier.startsWith(".")).map((specifier) => dirname(normalize(join(from, specifier))));
    edges.set(from, new Set([...(edges.get(from) ?? []), ...targets.filter((to) => to !== from && isInner(to))]));
  }
  const reach = new Map([...edges.keys()].map((from) => [from, reachable(edges, from)]));
  const circles = [...reach].map(([from, all]) =>
    [...all]
      .filter((to) => to !== from && reach.get(to)?.has(from))
      .concat(from)
      .sort(),
  );
  return [...new Set(circles.filter((circle) => circle.length > 1).map((circle) => circle.join(", ")))];
}

function reachable(edges: ReadonlyMap<string, ReadonlySet<string>>, from: string): Set<string> {
  const found = new Set<string>();
  const open = [from];
  for (let next = open.pop(); next !== undefined; next = open.pop())
    for (const to of edges.get(next) ?? [])
      if (!found.has(to)) {
        found.add(to);
        open.push(to);
      }
  return found;
}

/** Names of engines. Only their own folders and the benchmarks of the bare engine use them */
const ENGINE_NAME = /qemu/i;
const ENGINE_PLACES = ["packages/runtime/src/vmm/", "packages/cli/src/commands/bench/"];
const ENGINE_CHOICE = "packages/runtime/src/vmm/engine.ts";

/**
 * One line per line that names an engine in code, comment or message, and per import that bypasses the file that
 * selects it
 */
export function engineProblems(path: string, text: string): string[] {
  if (path === ENGINE_CHOICE || /^packages\/runtime\/src\/vmm\/[^/]+\//.test(path)) return [];
  const inPlace = ENGINE_PLACES.some((place) => path.startsWith(place));
  const named = text
    .split("\n")
    .flatMap((line, at) => (!inPlace && ENGINE_NAME.test(line) ? [`${path}:${at + 1}: names an engine: ${line.trim()}`] : []));
  const imported = importsIn(text).filter((specifier) => ENGINE_NAME.test(specifier));
  return [...named, ...(inPlace ? imported.map((specifier) => `${path}: imports ${specifier}, but only ${ENGINE_CHOICE} does`) : [])];
}

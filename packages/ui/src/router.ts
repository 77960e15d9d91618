// Addresses of the views: the part of the path after /ui.

import { signal } from "@preact/signals";

const PREFIX = "/ui";

export const route = signal(current());

addEventListener("popstate", () => (route.value = current()));

export function go(path: string): void {
  if (path === route.value) return;
  history.pushState(null, "", PREFIX + path);
  route.value = path;
  scrollTo(0, 0);
}

/** The segments of the route, decoded */
export function segments(): string[] {
  return route.value
    .split("/")
    .filter(Boolean)
    .map((part) => decodeURIComponent(part));
}

export function href(path: string): string {
  return PREFIX + path;
}

export function sandboxPath(id: string, tab?: string): string {
  return `/sandboxes/${encodeURIComponent(id)}${tab === undefined ? "" : `/${tab}`}`;
}

export function snapshotPath(tag: string): string {
  return `/snapshots/${encodeURIComponent(tag)}`;
}

function current(): string {
  const path = location.pathname.slice(PREFIX.length);
  return path === "" ? "/" : path;
}

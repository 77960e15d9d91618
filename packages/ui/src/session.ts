// Login: exchanges the code of the link for a cookie, and keeps the key that each request needs beside it.

import { signal } from "@preact/signals";
import type { Scope } from "forkd";

const KEY = "forkd-ui-key";
const HEADER = "x-forkd-ui";
const ARRIVES_MS = 2500;
const PROTOCOL = "forkd.ui.";
const RANK: Record<Scope, number> = { read: 0, exec: 1, admin: 2, operator: 3 };

export type Session = { principal: string; project: string; scope: Scope; expires_at_unix: number; version: string; is_cluster: boolean };

export type LoginState = { is: "asking" } | { is: "in"; session: Session } | { is: "out"; why: string };

export const login = signal<LoginState>({ is: "asking" });

let isChecking = false;

export async function logIn(): Promise<void> {
  const code = /^#login=(\w+)$/.exec(location.hash)?.[1];
  // the code stays neither in the address bar nor in the history
  if (code !== undefined) history.replaceState(null, "", location.pathname);
  const answer = code === undefined ? await ask("GET") : await ask("POST", JSON.stringify({ code }));
  if (answer === null) {
    login.value = { is: "out", why: "The daemon does not answer." };
    return;
  }
  const body = (await answer.json()) as Session & { key?: string; error?: string };
  if (!answer.ok) {
    login.value = { is: "out", why: code === undefined ? "" : (body.error ?? "") };
    return;
  }
  if (body.key !== undefined) localStorage.setItem(KEY, body.key);
  login.value = { is: "in", session: body };
}

export async function logOut(): Promise<void> {
  await ask("DELETE");
  localStorage.removeItem(KEY);
  login.value = { is: "out", why: "You are logged out." };
}

/** Called when the daemon refuses the session: it has expired, or the token behind it was revoked */
export function sessionEnded(): void {
  if (!isCluster()) out();
  else if (!isChecking) void checkAgain();
}

/** A gateway answers, which serves several nodes */
export function isCluster(): boolean {
  return login.value.is === "in" && login.value.session.is_cluster;
}

export function may(scope: Scope): boolean {
  return login.value.is === "in" && RANK[login.value.session.scope] >= RANK[scope];
}

/** Whether this browser was logged in before; the daemon knows whether it still is */
export function wasLoggedIn(): boolean {
  return localStorage.getItem(KEY) !== null && location.hash === "";
}

export function keyHeader(): Record<string, string> {
  return { [HEADER]: localStorage.getItem(KEY) ?? "" };
}

/** A WebSocket has no headers of the page, so its protocol carries the key */
export function keyProtocol(): string {
  return PROTOCOL + (localStorage.getItem(KEY) ?? "");
}

function out(): void {
  if (login.value.is === "in") login.value = { is: "out", why: "The session has ended." };
}

/** Another gateway than that of the login may need a moment until it knows the session */
async function checkAgain(): Promise<void> {
  isChecking = true;
  await new Promise((resolve) => void setTimeout(resolve, ARRIVES_MS));
  const answer = await ask("GET");
  isChecking = false;
  if (answer?.status === 401) out();
}

async function ask(method: string, body?: string): Promise<Response | null> {
  try {
    const headers = { ...keyHeader(), "content-type": "application/json" };
    return await fetch("/ui/session", { method, headers, ...(body === undefined ? {} : { body }) });
  } catch {
    return null; // the daemon is away
  }
}

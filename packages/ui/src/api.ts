// The daemon: the SDK on fetch with the session's key, and whether the daemon answers.

import { signal } from "@preact/signals";
import { Controller, ForkdError } from "forkd";
import { keyHeader, sessionEnded } from "./session.ts";

/** Whether the last request reached the daemon */
export const isReachable = signal(true);

export const forkd: Controller = new Controller({ url: location.origin, fetch: fetchWithKey });

/** The same in another project, for operators */
export function forkdIn(project: string): Controller {
  return new Controller({ url: location.origin, fetch: fetchWithKey, project });
}

async function fetchWithKey(url: string, init: RequestInit): Promise<Response> {
  try {
    const response = await fetch(url, { ...init, headers: { ...(init.headers as Record<string, string>), ...keyHeader() } });
    isReachable.value = true;
    if (response.status === 401) sessionEnded();
    return response;
  } catch (error) {
    if (init.signal?.aborted !== true) isReachable.value = false;
    throw error;
  }
}

/** Streams a file of this computer: the SDK takes bytes, for which all of it would have to be in memory */
export async function upload(sandbox: string, path: string, file: Blob): Promise<void> {
  const response = await fetchWithKey(fileUrl(sandbox, path), { method: "PUT", body: file });
  if (!response.ok) throw await problemOf(response);
}

export async function download(sandbox: string, path: string): Promise<Blob> {
  const response = await fetchWithKey(fileUrl(sandbox, path), { method: "GET" });
  if (!response.ok) throw await problemOf(response);
  return response.blob();
}

function fileUrl(sandbox: string, path: string): string {
  return `/v1/sandboxes/${encodeURIComponent(sandbox)}/files?path=${encodeURIComponent(path)}`;
}

async function problemOf(response: Response): Promise<ForkdError> {
  const { code, error, hint } = (await response.json()) as { code: string; error: string; hint: string };
  return new ForkdError(code, error, { hint });
}

/** A message for the user; null: the work was aborted */
export function explain(error: unknown): string | null {
  if (error instanceof DOMException && error.name === "AbortError") return null;
  if (error instanceof ForkdError) return `${error.message}${error.hint ? ` ${error.hint}` : ""}`;
  return error instanceof Error ? error.message : String(error);
}

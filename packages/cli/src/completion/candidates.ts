// Names that a shell completes. Fast, and silent when no daemon is running, because the user pressed Tab.

import { connectIfRunning } from "../daemon/connect.ts";
import { isInternal } from "../recipe/layer.ts";

import type { Controller } from "forkd";
import type { Cli } from "../cli.ts";
import type { Kind } from "./kinds.ts";

const WITHIN_MS = 2000;

export async function candidates(cli: Cli, kind: Kind): Promise<string[]> {
  try {
    const forkd = await connectIfRunning(cli);
    return forkd ? await namesOf(forkd, kind, AbortSignal.any([cli.signal, AbortSignal.timeout(WITHIN_MS)])) : [];
  } catch {
    // any error: there are no candidates, and a message would be printed into the line that is being typed
    return [];
  }
}

async function namesOf(forkd: Controller, kind: Kind, signal: AbortSignal): Promise<string[]> {
  switch (kind) {
    case "recipes":
      return (await forkd.listRecipes({ signal })).map(({ name }) => name);
    case "sandboxes":
      return (await forkd.listSandboxes({ signal })).flatMap(({ name, id }) => (name === null ? [id] : [name, id]));
    case "places":
      return (await forkd.listSandboxes({ signal })).map(({ name, id }) => `${name ?? id}:`);
    case "snapshots":
      return (await forkd.listSnapshots({ signal })).filter((snapshot) => !isInternal(snapshot)).map(({ tag }) => tag);
    case "images":
      return (await forkd.listImages({ signal })).flatMap(({ names }) => names);
  }
}

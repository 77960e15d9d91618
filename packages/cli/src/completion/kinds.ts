// Which words of a command line name an existing object, so that a shell can complete them.

import type { Argument, Option } from "commander";

export const KINDS = ["sandboxes", "snapshots", "images", "recipes", "places"] as const;
/** `places` are sandboxes in the form of `cp`, ID:/path */
export type Kind = (typeof KINDS)[number];

const ARGUMENTS: Record<string, Kind> = {
  id: "sandboxes",
  ids: "sandboxes",
  tag: "snapshots",
  tags: "snapshots",
  snapshot: "snapshots",
  recipe: "recipes",
  place: "places",
  source: "places",
  destination: "places",
};

const OPTIONS: Record<string, Kind> = {
  "--from-sandbox": "sandboxes",
  "--sandbox": "sandboxes",
  "--snapshot": "snapshots",
  "--image": "images",
};

/** Words whose kind depends on the verb. undefined: the name of a new object */
const BY_VERB: Record<string, Kind | undefined> = {
  "fork --tag": "snapshots",
  "spawn --tag": "snapshots",
  "ls --tag": "snapshots",
  "kill --tag": "snapshots",
  "rm --tag": "snapshots",
  "delete --tag": "snapshots",
  "bench --tag": "snapshots",
  "pack --without": "snapshots",
  "snapshot-diff --from": "snapshots",
  "snapshot create tag": undefined,
  "snapshot compact from": "snapshots",
  "snapshot-compact from": "snapshots",
  "files mv from": "places",
  "files cp from": "places",
  "image inspect name": "images",
  "image rm names": "images",
};

export function kindOfArgument(path: string, argument: Argument): Kind | undefined {
  return kindOf(path, argument.name(), ARGUMENTS);
}

export function kindOfOption(path: string, option: Option): Kind | undefined {
  return kindOf(path, option.long ?? "", OPTIONS);
}

function kindOf(path: string, word: string, usual: Record<string, Kind>): Kind | undefined {
  const own = `${path} ${word}`;
  return own in BY_VERB ? BY_VERB[own] : usual[word];
}

// Options for a new snapshot: its descriptive fields, who may fork it, and when it is removed.

import { Option, type Command } from "commander";
import { addPair, duration } from "./values.ts";

import type { CreateSnapshotOptions } from "forkd";

export type LabelFlags = Pick<CreateSnapshotOptions, "metadata" | "description" | "visibility"> & { expiresIn?: number };
type Labels = Pick<CreateSnapshotOptions, "metadata" | "description" | "visibility" | "expiresInSecs">;

export function acceptLabels(command: Command): Command {
  return command
    .option("--metadata <key=value>", "kept for you; may be repeated", addPair)
    .option("--description <text>", "what the snapshot is for; 'forkd snapshot ls' shows it")
    .addOption(new Option("--visibility <who>", "public: other projects may fork it, as PROJECT/TAG").choices(["private", "public"]))
    .option("--expires-in <time>", "remove it after this time, when nothing needs it: 10m, 2h, 7d", duration);
}

export function labelsOf({ metadata, description, visibility, expiresIn }: LabelFlags): Labels {
  return { metadata, description, visibility, expiresInSecs: expiresIn };
}

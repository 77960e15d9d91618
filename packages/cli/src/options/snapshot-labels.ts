// Options for the descriptive fields of a new snapshot.

import { addPair } from "./values.ts";

import type { Command } from "commander";
import type { CreateSnapshotOptions } from "forkd";

export type LabelFlags = Pick<CreateSnapshotOptions, "metadata" | "description">;

export function acceptLabels(command: Command): Command {
  return command
    .option("--metadata <key=value>", "kept for you; may be repeated", addPair)
    .option("--description <text>", "what the snapshot is for; 'forkd snapshot ls' shows it");
}

export function labelsOf({ metadata, description }: LabelFlags): LabelFlags {
  return { metadata, description };
}

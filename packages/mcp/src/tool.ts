// A tool: a name, a description for a model, a schema, and one function on the SDK.

import type { Controller } from "forkd";
import type * as z from "zod";
import type { Owner } from "./owner.ts";

/** Context of a call */
export type Call = {
  forkd: Controller;
  /** Aborted when the client cancels the call or disconnects */
  signal: AbortSignal;
  /** Reports progress, if the client requested it */
  progress: (message: string) => void;
  /** Owner of new sandboxes */
  owner: Owner;
};

export type Kind =
  /** Reads only */
  | "read"
  /** Creates or changes */
  | "write"
  /** Removes irreversibly */
  | "destroy";

export type Tool = {
  name: string;
  title: string;
  description: string;
  kind: Kind;
  input: z.ZodObject;
  /** The result becomes JSON */
  run: (args: never, call: Call) => Promise<unknown>;
};

/** Infers the type of the arguments from the schema */
export function tool<Input extends z.ZodObject>(
  definition: Omit<Tool, "input" | "run"> & { input: Input; run: (args: z.output<Input>, call: Call) => Promise<unknown> },
): Tool {
  return definition;
}

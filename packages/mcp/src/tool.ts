// What a tool is: a name, words for a model, a schema, and one function over the SDK.

import type { Controller } from "forkd";
import type * as z from "zod";
import type { Owner } from "./owner.ts";

/** What a tool is given beside its arguments */
export type Call = {
  forkd: Controller;
  /** Aborted when the client cancels the call or goes away */
  signal: AbortSignal;
  /** Tells the client how far it is; nothing when it did not ask */
  progress: (message: string) => void;
  /** To whom new sandboxes belong */
  owner: Owner;
};

export type Kind =
  /** Looks, and changes nothing */
  | "read"
  /** Makes or changes something */
  | "write"
  /** Takes something away that cannot be brought back */
  | "destroy";

export type Tool = {
  name: string;
  title: string;
  description: string;
  kind: Kind;
  input: z.ZodObject;
  /** The value becomes JSON */
  run: (args: never, call: Call) => Promise<unknown>;
};

/** Binds the type of the arguments to the schema */
export function tool<Input extends z.ZodObject>(
  definition: Omit<Tool, "input" | "run"> & { input: Input; run: (args: z.output<Input>, call: Call) => Promise<unknown> },
): Tool {
  return definition;
}

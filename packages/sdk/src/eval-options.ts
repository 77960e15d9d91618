// What callers can choose when they run code.

import type { OnceOptions } from "./options.ts";
import type { DisplayResult, Env, Language } from "./schema.gen.ts";

export type EvalOptions = OnceOptions & {
  /** Needed only when the snapshot has several; one that is not warm yet is started, where the image has it */
  language?: Language | undefined;
  /** Where it runs, in place of the language's own interpreter: of {@link Sandbox.contexts} */
  context?: string | { id: string } | undefined;
  /** Set while this code runs */
  env?: Env | undefined;
  /** How long the code may run. @default 30 */
  timeoutSecs?: number | undefined;
};

/** What is called while code runs; with any of these, an abort of `signal` interrupts it at once */
export type EvalHandlers = {
  onStdout?: ((text: string) => void | Promise<void>) | undefined;
  onStderr?: ((text: string) => void | Promise<void>) | undefined;
  /** What the code displays, when it does; its value, where that shows more than text, is the last */
  onResult?: ((result: DisplayResult) => void | Promise<void>) | undefined;
};

export type CreateContextOptions = OnceOptions & {
  /** Where it begins. @default / */
  cwd?: string | undefined;
  env?: Env | undefined;
};

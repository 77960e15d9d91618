// The interpreters of one sandbox.

import type { Controller } from "./controller.ts";
import type { CreateContextOptions } from "./eval-options.ts";
import type { CallOptions } from "./options.ts";
import type { Context, Language } from "./schema.gen.ts";

/** Interpreters, each with its own state. The first one of a language has the language's name as its id. */
export class SandboxContexts {
  private readonly controller: Controller;
  private readonly sandbox: string;

  constructor(controller: Controller, sandbox: string) {
    this.controller = controller;
    this.sandbox = sandbox;
  }

  /** Those that there are. */
  async list(opts: CallOptions = {}): Promise<Context[]> {
    return await this.controller.listContexts(this.sandbox, opts);
  }

  /**
   * Starts another one.
   *
   * @example
   * ```ts
   * const shell = await sandbox.contexts.create("bash", { cwd: "/srv" });
   * await sandbox.eval("make", { context: shell, onStdout: (text) => process.stdout.write(text) });
   * ```
   */
  async create(language: Language, opts: CreateContextOptions = {}): Promise<Context> {
    return await this.controller.createContext(this.sandbox, language, opts);
  }

  /** Ends one and what it runs. */
  async remove(context: string | Context, opts: CallOptions = {}): Promise<void> {
    await this.controller.deleteContext(this.sandbox, idOf(context), opts);
  }

  /** Puts a fresh one in its place, with nothing of its state. */
  async restart(context: string | Context, opts: CallOptions = {}): Promise<Context> {
    return await this.controller.restartContext(this.sandbox, idOf(context), opts);
  }

  /** Interrupts the code that it runs; its state stays. */
  async interrupt(context: string | Context, opts: CallOptions = {}): Promise<void> {
    await this.controller.interruptContext(this.sandbox, idOf(context), opts);
  }
}

function idOf(context: string | Context): string {
  return typeof context === "string" ? context : context.id;
}

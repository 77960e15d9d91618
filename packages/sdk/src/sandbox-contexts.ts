// The interpreters of one sandbox.

import type { Controller } from "./controller.ts";
import type { CallOptions } from "./call-options.ts";
import type { CreateContextOptions } from "./options.gen.ts";
import type { Context, Language } from "./schema.gen.ts";

/** Interpreters, each with its own state. The first one of a language has the language's name as its id. */
export class SandboxContexts {
  private readonly controller: Controller;
  private readonly sandbox: string;

  constructor(controller: Controller, sandbox: string) {
    this.controller = controller;
    this.sandbox = sandbox;
  }

  /** Lists the contexts of the sandbox. */
  async list(opts: CallOptions = {}): Promise<Context[]> {
    return await this.controller.listContexts(this.sandbox, opts);
  }

  /**
   * Starts another interpreter.
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

  /** Ends an interpreter and the processes it started. */
  async remove(context: string | Context, opts: CallOptions = {}): Promise<void> {
    await this.controller.deleteContext(this.sandbox, idOf(context), opts);
  }

  /** Replaces an interpreter by a fresh one with empty state. */
  async restart(context: string | Context, opts: CallOptions = {}): Promise<Context> {
    return await this.controller.restartContext(this.sandbox, idOf(context), opts);
  }

  /** Interrupts the code that an interpreter runs; its state is kept. */
  async interrupt(context: string | Context, opts: CallOptions = {}): Promise<void> {
    await this.controller.interruptContext(this.sandbox, idOf(context), opts);
  }
}

function idOf(context: string | Context): string {
  return typeof context === "string" ? context : context.id;
}

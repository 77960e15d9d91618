// A command with its own pseudo-terminal.

import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { until } from "./until.ts";

type Said = { pid?: number; output?: string; modes?: string; exit?: number };

export class Terminal implements AsyncDisposable {
  readonly #child: ChildProcess;
  #screen = "";
  #modes: string | undefined;
  #exit: number | undefined;
  #pid = 0;

  constructor(command: readonly string[], env: NodeJS.ProcessEnv) {
    this.#child = spawn("python3", [join(import.meta.dirname, "terminal.py"), ...command], { env, stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    lines.on("line", (line) => {
      const said = JSON.parse(line) as Said;
      if (said.output !== undefined) this.#screen += Buffer.from(said.output, "base64").toString();
      if (said.modes !== undefined) this.#modes = said.modes;
      if (said.exit !== undefined) this.#exit = said.exit;
      if (said.pid !== undefined) this.#pid = said.pid;
    });
  }

  /** All output so far */
  get screen(): string {
    return this.#screen;
  }

  /** Pid of the command */
  get pid(): number {
    return this.#pid;
  }

  type(text: string): void {
    this.#say({ type: text });
  }

  resize(rows: number, cols: number): void {
    this.#say({ resize: [rows, cols] });
  }

  /** Types a line and waits for output that matches `answer`, which must not match the echo of the line */
  async ask(line: string, answer: RegExp): Promise<string> {
    const from = this.#screen.length;
    this.type(`${line}\r`);
    return this.shows(answer, from);
  }

  /** Waits until the output after offset `from` matches */
  async shows(what: RegExp, from = 0): Promise<string> {
    await this.#comes(`${String(what)} is not shown`, () => what.test(this.#screen.slice(from)));
    return what.exec(this.#screen.slice(from))?.[0] ?? "";
  }

  /** Current settings of the terminal */
  async modes(): Promise<string> {
    this.#modes = undefined;
    this.#say({ modes: true });
    await until(() => this.#modes !== undefined);
    return this.#modes ?? "";
  }

  /** Exit code, or -n after signal n */
  async exit(): Promise<number> {
    await this.#comes("the command does not end", () => this.#exit !== undefined);
    return this.#exit ?? Number.NaN;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.stdin?.end();
    if (this.#child.exitCode === null) await new Promise((done) => this.#child.once("exit", done));
  }

  async #comes(failure: string, isSo: () => boolean): Promise<void> {
    try {
      await until(isSo);
    } catch (error) {
      throw new Error(`${failure} after ${JSON.stringify(this.#screen)}`, { cause: error });
    }
  }

  #say(command: object): void {
    this.#child.stdin?.write(`${JSON.stringify(command)}\n`);
  }
}

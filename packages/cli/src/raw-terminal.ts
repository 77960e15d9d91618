// The terminal of this command, handed to a program elsewhere: every key goes there, and it is given back whatever happens.

import { execFileSync } from "node:child_process";

const LEAVE_KEY = 0x1d;
const LEAVE_TIMES = 3;
const LEAVE_WITHIN_MS = 1000;
const FALLBACK = { rows: 24, cols: 80 };

export type TerminalSize = { rows: number; cols: number };

/** Node's own raw mode still turns line ends of the output into two characters, which shifts what full-screen programs draw: so it is stty's */
export class RawTerminal implements Disposable {
  readonly #onResize: () => void;
  readonly #restore: () => void;

  constructor(onResize: (size: TerminalSize) => void) {
    const before = stty("-g").trim();
    this.#restore = () => void stty(before);
    // also when something ends the process in the middle, where nothing asynchronous is possible
    process.once("exit", this.#restore);
    stty("raw", "-echo");
    this.#onResize = () => onResize(terminalSize());
    process.stdout.on("resize", this.#onResize);
  }

  [Symbol.dispose](): void {
    process.stdout.off("resize", this.#onResize);
    process.off("exit", this.#restore);
    this.#restore();
  }
}

function stty(...args: string[]): string {
  return execFileSync("stty", args, { stdio: ["inherit", "pipe", "inherit"], encoding: "utf8" });
}

/** Of this command's terminal, or the usual one where there is none */
export function terminalSize(): TerminalSize {
  const { rows, columns } = process.stdout;
  return rows && columns ? { rows, cols: columns } : FALLBACK;
}

/** Ctrl-] three times within a second leaves, as in machinectl. Until it is known whether more follow, they are held back */
export class LeaveKeys {
  readonly #release: (keys: Uint8Array) => void;
  #held = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param release gets keys after which no more came */
  constructor(release: (keys: Uint8Array) => void) {
    this.#release = release;
  }

  /** What is to be passed on of what was typed; undefined: it means to leave */
  take(typed: Uint8Array): Uint8Array | undefined {
    clearTimeout(this.#timer);
    const passed: number[] = [];
    for (const key of typed) {
      if (key === LEAVE_KEY) this.#held++;
      else passed.push(...this.#holding(), key);
      if (this.#held === LEAVE_TIMES) return undefined;
    }
    if (this.#held > 0) this.#timer = setTimeout(() => this.#release(Uint8Array.from(this.#holding())), LEAVE_WITHIN_MS);
    return Uint8Array.from(passed);
  }

  /** What is held, from now on no more */
  #holding(): number[] {
    const held = Array.from({ length: this.#held }, () => LEAVE_KEY);
    this.#held = 0;
    return held;
  }
}

// Forwards the terminal of this command to a program in a guest: raw mode for all keys, always restored.

import { execFileSync } from "node:child_process";

const LEAVE_KEY = 0x1d;
const LEAVE_TIMES = 3;
const LEAVE_WITHIN_MS = 1000;
const FALLBACK = { rows: 24, cols: 80 };

export type TerminalSize = { rows: number; cols: number };

/** Set with stty: Node's raw mode still translates line ends of the output, which shifts the display of full-screen programs */
export class RawTerminal implements Disposable {
  readonly #onResize: () => void;
  readonly #restore: () => void;

  constructor(onResize: (size: TerminalSize) => void) {
    const before = stty("-g").trim();
    this.#restore = () => void stty(before);
    // also when the process is exiting, where only synchronous calls are possible
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

/** The size of this command's terminal, or the default without one */
export function terminalSize(): TerminalSize {
  const { rows, columns } = process.stdout;
  return rows && columns ? { rows, cols: columns } : FALLBACK;
}

/** Ctrl-] three times within a second detaches, as in machinectl. The keys are held back until it is known whether more follow */
export class LeaveKeys {
  readonly #release: (keys: Uint8Array) => void;
  #held = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param release called with held keys that no further key followed */
  constructor(release: (keys: Uint8Array) => void) {
    this.#release = release;
  }

  /** The typed keys to forward; undefined: detach */
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

  /** The held keys, which are then no longer held */
  #holding(): number[] {
    const held = Array.from({ length: this.#held }, () => LEAVE_KEY);
    this.#held = 0;
    return held;
  }
}

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

/** Ctrl-] three times within a second leaves, as in machinectl; until then it is a key like any other */
export class LeaveKeys {
  #times: number[] = [];

  isSeen(typed: Uint8Array, now: number = Date.now()): boolean {
    for (const key of typed) {
      if (key !== LEAVE_KEY) this.#times = [];
      else this.#times = [...this.#times.slice(1 - LEAVE_TIMES), now];
      if (this.#times.length === LEAVE_TIMES && now - (this.#times[0] ?? 0) <= LEAVE_WITHIN_MS) return true;
    }
    return false;
  }
}

// The whole screen of a terminal, drawn line by line where it changed, and given back on every exit.

import { colour, isBroken, writeScreen } from "../terminal/output.ts";
import { RawTerminal, terminalSize, type TerminalSize } from "../terminal/raw-terminal.ts";

import type { Line, Look } from "./frame.ts";

/** Another screen buffer, so that the shell's text returns afterwards; no cursor; no wrapping at the last column */
const ENTER = "\u001b[?1049h\u001b[?25l\u001b[?7l\u001b[2J";
const LEAVE = "\u001b[?7h\u001b[?25h\u001b[?1049l";
const INVERSE = "\u001b[7m";
const BOLD = "\u001b[1m";
const DIM = "\u001b[2m";
const NORMAL = "\u001b[0m";
const CLEAR = "\u001b[2J";

export class Screen implements Disposable {
  readonly #raw: RawTerminal;
  readonly #leave = (): void => writeScreen(LEAVE);
  readonly #onKeys: (typed: string) => void;
  readonly #onEnd: () => void;
  #shown: string[] = [];

  /** @param onEnd called when no more keys can come */
  constructor(on: { keys: (typed: string) => void; end: () => void; resize: () => void }) {
    this.#raw = new RawTerminal(() => {
      this.#shown = [];
      on.resize();
    });
    this.#onKeys = on.keys;
    this.#onEnd = on.end;
    // also when the process ends by an error that is caught nowhere
    process.once("exit", this.#leave);
    writeScreen(ENTER);
    process.stdin.setEncoding("utf8");
    process.stdin.on("data", this.#onKeys).on("end", this.#onEnd);
  }

  get size(): TerminalSize {
    return terminalSize();
  }

  /** Lines that are shown already are not written again, so nothing flickers */
  draw(lines: readonly Line[]): void {
    if (isBroken("stdout")) return;
    const next = lines.map(({ text, look }) => styled(text, look));
    const isNew = this.#shown.length !== next.length;
    const changes = next.flatMap((line, i) => (isNew || this.#shown[i] !== line ? [`\u001b[${i + 1};1H${line}`] : []));
    this.#shown = next;
    if (changes.length > 0) writeScreen((isNew ? CLEAR : "") + changes.join(""));
  }

  [Symbol.dispose](): void {
    process.stdin.off("data", this.#onKeys).off("end", this.#onEnd);
    process.stdin.pause();
    process.off("exit", this.#leave);
    this.#leave();
    this.#raw[Symbol.dispose]();
  }
}

/** Inverse, bold and dim are no colours: they stay with NO_COLOR */
function styled(text: string, look: Look): string {
  switch (look) {
    case "selected":
      return INVERSE + text + NORMAL;
    case "title":
      return BOLD + text + NORMAL;
    case "dim":
      return DIM + text + NORMAL;
    case "error":
      return BOLD + colour("red", text) + NORMAL;
    case "plain":
      return text;
  }
}

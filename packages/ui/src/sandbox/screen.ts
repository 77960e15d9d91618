// A terminal on the screen: xterm.js on the WebSocket of a process. After a lost connection it continues where it was.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import css from "@xterm/xterm/css/xterm.css";
import { forkd } from "../api.ts";
import { addStyle } from "../library-style.ts";
import { keyProtocol } from "../session.ts";

const FIRST_WAIT_MS = 200;
const MAX_WAIT_MS = 5000;
const SCROLLBACK_LINES = 5000;
const STDIN_CLOSED = "This terminal has ended.";

type Said = { started?: { stdout_offset: number }; exit?: object; error?: { code: string; error: string } };

type Options = { sandbox: string; process: number; onNote: (note: string | null) => void };

export class Screen {
  readonly #options: Options;
  readonly #terminal: Terminal;
  readonly #fit = new FitAddon();
  readonly #observer: ResizeObserver;
  #socket: WebSocket | null = null;
  /** position after the output that is on the screen */
  #offset = 0;
  /** position after the output that the screen has interpreted */
  #interpreted = 0;
  /** output before this position is a repetition: answers to its queries would be typed into the shell */
  #replayUntil = 0;
  #waitMs = FIRST_WAIT_MS;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  constructor(box: HTMLElement, options: Options) {
    this.#options = options;
    addStyle(css);
    this.#terminal = new Terminal({
      scrollback: SCROLLBACK_LINES,
      fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, monospace',
      fontSize: 14,
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
      theme: { background: "#0a0d11", foreground: "#e6eaf0", cursor: "#4cc796", selectionBackground: "#2b4a5e" },
      screenReaderMode: false,
      // a guest may print links; they are shown and never opened
      linkHandler: { activate: () => undefined },
    });
    this.#terminal.loadAddon(this.#fit);
    this.#terminal.open(box);
    this.#terminal.textarea?.setAttribute("aria-label", "Terminal input");
    this.#terminal.onData((text) => this.#type(text));
    this.#terminal.onResize(() => this.#resize());
    this.#observer = new ResizeObserver(() => this.#refit());
    this.#observer.observe(box);
    // tests read the text of the screen
    Object.assign(box, { screenText: () => this.#text() });
    void this.#connect();
  }

  show(): void {
    this.#refit();
    this.#terminal.focus();
  }

  /** The process continues */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#observer.disconnect();
    this.#socket?.close();
    this.#terminal.dispose();
  }

  async #connect(): Promise<void> {
    const { sandbox, process, onNote } = this.#options;
    try {
      // everything that was written before is a repetition
      const { stdout_bytes: written } = await forkd.getProcess(sandbox, String(process));
      this.#replayUntil = Math.max(this.#offset, written);
    } catch {
      this.#retry(); // the daemon is away, or the sandbox is gone; the note says which when the daemon answers
      return;
    }
    if (this.#isClosed) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const url = `${scheme}://${location.host}/v1/sandboxes/${encodeURIComponent(sandbox)}/processes/stream`;
    const socket = new WebSocket(url, keyProtocol());
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.addEventListener("open", () => socket.send(JSON.stringify({ attach: { process: String(process), stdout_from: this.#offset } })));
    socket.addEventListener("message", ({ data }: MessageEvent<ArrayBuffer | string>) => {
      if (typeof data === "string") this.#hear(JSON.parse(data) as Said);
      else this.#write(new Uint8Array(data, 1));
    });
    socket.addEventListener("close", () => {
      if (this.#socket !== socket || this.#isClosed) return;
      this.#socket = null;
      onNote("Reconnecting…");
      this.#retry();
    });
  }

  #retry(): void {
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#connect(), this.#waitMs);
    this.#waitMs = Math.min(this.#waitMs * 2, MAX_WAIT_MS);
  }

  #hear(said: Said): void {
    const { onNote } = this.#options;
    if (said.started) {
      this.#offset = said.started.stdout_offset;
      this.#interpreted = this.#offset;
      this.#waitMs = FIRST_WAIT_MS;
      onNote(null);
      this.#refit();
      this.#resize();
    }
    if (said.error) onNote(said.error.error);
    if (said.exit) {
      onNote(STDIN_CLOSED);
      this.#end();
    }
  }

  #end(): void {
    this.#isClosed = true;
    this.#observer.disconnect();
    this.#socket?.close();
  }

  #write(bytes: Uint8Array): void {
    this.#offset += bytes.length;
    const end = this.#offset;
    this.#terminal.write(bytes, () => (this.#interpreted = end));
  }

  #type(text: string): void {
    // the screen answers queries of a repetition while it shows it
    if (this.#interpreted < this.#replayUntil) return;
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(new TextEncoder().encode(text));
  }

  #refit(): void {
    // a hidden box has no size
    if (this.#terminal.element?.offsetParent) this.#fit.fit();
  }

  #resize(): void {
    const { rows, cols } = this.#terminal;
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ resize: { rows, cols } }));
  }

  #text(): string {
    const { active } = this.#terminal.buffer;
    return Array.from({ length: active.length }, (_, at) => active.getLine(at)?.translateToString(true) ?? "").join("\n");
  }
}

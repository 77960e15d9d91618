// Output of a process in pages. A position is `STDOUT-STDERR`: the bytes of each that were read.

import { wholeCharacters } from "./text.ts";
import type { ProcessStreamEvent } from "forkd";

type Channel = "stdout" | "stderr";

/** A page of both channels, each with a limit */
export class OutputPage {
  readonly #maxBytes: number;
  readonly #parts: Record<Channel, Uint8Array[]> = { stdout: [], stderr: [] };
  readonly #kept: Record<Channel, number> = { stdout: 0, stderr: 0 };
  readonly #start: Record<Channel, number> = { stdout: 0, stderr: 0 };
  readonly #seen: Record<Channel, number> = { stdout: 0, stderr: 0 };
  #lost = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Adds the next event, in order */
  add(event: ProcessStreamEvent): void {
    switch (event.type) {
      case "started":
        this.#start.stdout = this.#seen.stdout = event.stdout_offset;
        this.#start.stderr = this.#seen.stderr = event.stderr_offset;
        break;
      case "lost":
        this.#lost += event.bytes;
        this.#seen[event.channel] += event.bytes;
        // only before the first byte: after it, lost output ends the page
        if (this.#kept[event.channel] === 0) this.#start[event.channel] += event.bytes;
        break;
      case "stdout":
      case "stderr":
        this.#keep(event.type, event.offset, event.bytes);
        break;
      case "exit":
        break;
    }
  }

  /** Whether the page is full */
  get isFull(): boolean {
    return this.isCut("stdout") || this.isCut("stderr");
  }

  get isEmpty(): boolean {
    return this.#kept.stdout + this.#kept.stderr + this.#lost === 0;
  }

  /** Received bytes, including those that did not fit */
  get bytes(): number {
    return this.#seen.stdout - this.#start.stdout + this.#seen.stderr - this.#start.stderr;
  }

  /** `isOver`: no more output follows, so an incomplete last character is returned too */
  text(isOver: boolean): { stdout: string; stderr: string; next: string; isCut: boolean; lost: number } {
    const stdout = this.#textOf("stdout", isOver);
    const stderr = this.#textOf("stderr", isOver);
    return { stdout: stdout.text, stderr: stderr.text, next: `${stdout.next}-${stderr.next}`, isCut: this.isFull, lost: this.#lost };
  }

  private isCut(channel: Channel): boolean {
    return this.#start[channel] + this.#kept[channel] < this.#seen[channel];
  }

  #keep(channel: Channel, offset: number, bytes: Uint8Array): void {
    // lost output ends the page of this channel
    const isNext = offset === this.#start[channel] + this.#kept[channel];
    const room = isNext ? this.#maxBytes - this.#kept[channel] : 0;
    if (room > 0) {
      // a copy: a slice would keep the whole chunk in memory
      this.#parts[channel].push(Uint8Array.from(bytes.subarray(0, room)));
      this.#kept[channel] += Math.min(room, bytes.length);
    }
    this.#seen[channel] = offset + bytes.length;
  }

  #textOf(channel: Channel, isOver: boolean): { text: string; next: number } {
    const bytes = Buffer.concat(this.#parts[channel]);
    const length = isOver && !this.isCut(channel) ? bytes.length : wholeCharacters(bytes);
    return { text: bytes.subarray(0, length).toString(), next: this.#start[channel] + length };
  }
}

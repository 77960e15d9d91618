// Writes to the stdin of a process, in order. Small writes that are waiting are sent together.

import { isStream } from "./upload.ts";
import type { FileContent } from "./call-options.ts";

type Item = {
  content: FileContent;
  close: boolean;
  resolve: () => void;
  reject: (error: unknown) => void;
};

export class StdinQueue {
  private readonly send: (content: FileContent, close: boolean) => Promise<void>;
  private readonly waiting: Item[] = [];
  private isSending = false;

  constructor(send: (content: FileContent, close: boolean) => Promise<void>) {
    this.send = send;
  }

  write(content: FileContent): Promise<void> {
    return this.add(content, false);
  }

  close(): Promise<void> {
    return this.add("", true);
  }

  private add(content: FileContent, close: boolean): Promise<void> {
    const done = new Promise<void>((resolve, reject) => this.waiting.push({ content, close, resolve, reject }));
    if (!this.isSending) void this.run();
    return done;
  }

  private async run(): Promise<void> {
    this.isSending = true;
    for (let batch = this.next(); batch.length > 0; batch = this.next()) {
      const [first] = batch;
      const content = batch.length === 1 && first ? first.content : join(batch);
      try {
        await this.send(content, batch.at(-1)?.close === true);
        for (const { resolve } of batch) resolve();
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.isSending = false;
  }

  /** A stream alone, else everything up to the next stream or end */
  private next(): Item[] {
    const batch: Item[] = [];
    for (let item = this.waiting[0]; item !== undefined; item = this.waiting[0]) {
      if (isStream(item.content) && batch.length > 0) break;
      batch.push(item);
      this.waiting.shift();
      if (item.close || isStream(item.content)) break;
    }
    return batch;
  }
}

function join(batch: readonly Item[]): Uint8Array {
  const encoder = new TextEncoder();
  const parts = batch.map(({ content }) => (typeof content === "string" ? encoder.encode(content) : (content as Uint8Array)));
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// Content on its way up: every chunk shows that the call is alive, and a source that fails is the caller's error, not the network's.

import type { Deadline } from "./deadline.ts";
import type { FileContent } from "./file-options.ts";

export class Upload {
  readonly body: FileContent;
  /** What the caller's own stream threw */
  failure: Error | undefined;

  constructor(content: FileContent, deadline: Deadline) {
    this.body = isStream(content) ? this.watch(content, deadline) : content;
  }

  private async *watch(chunks: AsyncIterable<Uint8Array>, deadline: Deadline): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of chunks) {
        deadline.restart();
        yield chunk;
      }
    } catch (error) {
      this.failure = error instanceof Error ? error : new Error(String(error));
      throw error;
    }
  }
}

/** A stream can be read once only: such a request is never repeated */
export function isStream(content: FileContent): content is AsyncIterable<Uint8Array> {
  return typeof content === "object" && !(content instanceof Uint8Array);
}

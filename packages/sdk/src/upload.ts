// Request bodies. Each chunk restarts the time limit. An error of the source is the caller's, not the network's.

import type { Deadline } from "./deadline.ts";
import type { FileContent } from "./call-options.ts";

export class Upload {
  readonly body: FileContent;
  /** The error that the caller's stream threw */
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

/** A stream can be read only once, so its request is never repeated */
export function isStream(content: FileContent): content is AsyncIterable<Uint8Array> {
  return typeof content === "object" && !(content instanceof Uint8Array);
}

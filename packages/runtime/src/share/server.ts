// Serves a share to a guest. It keeps no state between two requests, so that the daemon that adopts the guest can continue.

import { createHash } from "node:crypto";
import { constants } from "node:os";
import { ForkdError } from "../errors.ts";
import { Writer } from "../util/codec.ts";
import { within } from "../util/within.ts";
import type { AgentConnection } from "../agent/wire/connection.ts";
import { CHANNEL, T } from "../agent/wire/protocol.ts";
import { AgentError, type AgentStream } from "../agent/wire/stream.ts";
import { Semaphore } from "../util/semaphore.ts";
import { answerRecord, attributesBody, entriesBody, Errno, Questions, type Question } from "./record.ts";
import { ShareTree } from "./tree.ts";
import type { Hidden } from "./hidden.ts";

/** Concurrent answers to one guest; they take the memory */
const AT_ONCE = 8;
/** With this many pending requests the guest gets no credit for more */
const MOST_WAITING = 32;
const MOUNT_WITHIN_MS = 30_000;

/** A host folder, and its mount point in a guest */
export type Share = { source: string; target: string };

export type Sharing = {
  shares: readonly Share[];
  /** mount points in the guest's snapshot */
  mounted: readonly string[];
  hidden: Hidden;
  /** time limit for the guest; 0: none */
  withinMs?: number;
};

/** Sends all requests at once; resolves when the guest has mounted all shares and unmounted all others */
export async function startSharing(agent: AgentConnection, opts: Sharing): Promise<void> {
  const { shares, mounted, hidden, withinMs = MOUNT_WITHIN_MS } = opts;
  const turns = new Semaphore(AT_ONCE);
  const servers = shares.map((share) => new ShareServer(agent, share, hidden, turns));
  const others = mounted.filter((target) => !shares.some((share) => share.target === target));
  await Promise.all([
    ...servers.map(async (server) => server.mounted(withinMs)),
    ...others.map(async (target) => agent.call(T.UNMOUNT, new Writer().str(target).done(), { timeoutMs: withinMs })),
  ]);
}

class ShareServer {
  readonly #tree: ShareTree;
  readonly #stream: AgentStream;
  readonly #share: Share;
  readonly #questions = new Questions();
  readonly #turns: Semaphore;
  #waiting = 0;
  #room: (() => void) | undefined;
  #sent: Promise<void> = Promise.resolve();

  /** Asks the guest to mount it, or continues with a mounted one; mounted() resolves when that is done */
  constructor(agent: AgentConnection, share: Share, hidden: Hidden, turns: Semaphore) {
    this.#share = share;
    this.#turns = turns;
    this.#tree = new ShareTree(share.source, hidden);
    const payload = new Writer().str(share.target).str(nameOf(share.source)).done();
    this.#stream = agent.open(T.MOUNT, payload, (_channel, bytes) => this.#receive(bytes));
    // It runs until the guest or its channel ends; a guest that violates the protocol loses the share.
    const close = (): void => this.#tree.close();
    this.#stream.end().then(close, close);
  }

  async mounted(withinMs: number): Promise<void> {
    const { source, target } = this.#share;
    const what = `Cannot share ${source} at ${target}`;
    try {
      await within(
        this.#stream.started(),
        withinMs,
        undefined,
        () => new ForkdError("SHARE_FAILED", `${what}: the guest did not mount it within ${withinMs} ms.`),
      );
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      if (error.errno !== "unsupported") throw new ForkdError("SHARE_FAILED", `${what}: ${error.message}.`, { cause: error });
      throw new ForkdError("SHARE_FAILED", `${what}: the guest cannot mount it: ${error.message}.`, {
        cause: error,
        hint: "Make the snapshot again, with the agent and the guest kernel that this forkd has.",
      });
    }
  }

  #receive(bytes: Buffer): Promise<void> | undefined {
    for (const question of this.#questions.push(bytes)) {
      this.#waiting++;
      void this.#turns.run(async () => this.#answer(question));
    }
    return this.#waiting < MOST_WAITING ? undefined : new Promise<void>((resolve) => (this.#room = resolve));
  }

  async #answer(question: Question): Promise<void> {
    try {
      const record = await this.#record(question);
      // in sequence, because a record is longer than a frame
      this.#sent = this.#sent.then(async () => this.#stream.write(CHANNEL.stdin, record));
      await this.#sent;
    } catch {
      // the stream has ended, and with it the request
    } finally {
      this.#waiting--;
      if (this.#waiting < MOST_WAITING) this.#room?.();
    }
  }

  async #record(question: Question): Promise<Buffer> {
    try {
      return answerRecord(question.id, 0, await this.#body(question));
    } catch (error) {
      return answerRecord(question.id, errnoOf(error), Buffer.alloc(0));
    }
  }

  async #body({ op, path, inode, offset, size }: Question): Promise<Buffer> {
    switch (op) {
      case "stat":
        return attributesBody(await this.#tree.stat(path));
      case "read":
        return this.#tree.read(path, { inode, offset, size });
      case "link":
        return this.#tree.readLink(path);
      case "list": {
        const { entries, complete } = await this.#tree.list(path, offset, size);
        return entriesBody(entries, complete);
      }
    }
  }
}

/** Identifies the folder to the guest, without revealing its path on the host */
function nameOf(source: string): string {
  return createHash("sha256").update(source).digest("hex").slice(0, 32);
}

function errnoOf(error: unknown): number {
  if (error instanceof Errno) return error.errno;
  const { errno } = error as NodeJS.ErrnoException;
  return errno === undefined || errno >= 0 ? constants.errno.EIO : -errno;
}

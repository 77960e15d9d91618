// Answers what a guest asks about a share. Nothing is kept between two questions, so that whoever comes next can answer as well.

import { createHash } from "node:crypto";
import { constants } from "node:os";
import { ForkdError } from "../errors.ts";
import { Writer } from "../guest/codec.ts";
import { within, type AgentConnection } from "../guest/connection.ts";
import { CHANNEL, T } from "../guest/protocol.ts";
import { AgentError, type AgentStream } from "../guest/stream.ts";
import { Semaphore } from "../util/semaphore.ts";
import { answerRecord, attributesBody, entriesBody, Errno, Questions, type Question } from "./record.ts";
import { ShareTree } from "./tree.ts";
import type { Hidden } from "./hidden.ts";

/** Answers to one guest that are being made or sent; they are what takes memory here */
const AT_ONCE = 8;
/** Beyond so many questions the guest gets no credit for more */
const MOST_WAITING = 32;
const MOUNT_WITHIN_MS = 30_000;

/** A folder of the host, and where a guest sees it */
export type Share = { source: string; target: string };

export type Sharing = {
  shares: readonly Share[];
  /** what the guest has mounted already, as its snapshot remembers it */
  mounted: readonly string[];
  hidden: Hidden;
  /** how long the guest may take; 0: as long as it likes */
  withinMs?: number;
};

/** Sends everything at once; resolves when the guest has mounted all of them and unmounted all others */
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

  /** Asks the guest to mount it, or goes on with one that is mounted; mounted() tells when it has */
  constructor(agent: AgentConnection, share: Share, hidden: Hidden, turns: Semaphore) {
    this.#share = share;
    this.#turns = turns;
    this.#tree = new ShareTree(share.source, hidden);
    const payload = new Writer().str(share.target).str(nameOf(share.source)).done();
    this.#stream = agent.open(T.MOUNT, payload, (_channel, bytes) => this.#receive(bytes));
    // it goes on until the guest or its channel is gone; a guest that breaks the rules loses the share
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
      // one after another: a record is longer than a frame
      this.#sent = this.#sent.then(async () => this.#stream.write(CHANNEL.stdin, record));
      await this.#sent;
    } catch {
      // the stream has ended, and with it whoever waited for the answer
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

/** Tells the guest whether it is still the same folder, and not where that is on the host */
function nameOf(source: string): string {
  return createHash("sha256").update(source).digest("hex").slice(0, 32);
}

function errnoOf(error: unknown): number {
  if (error instanceof Errno) return error.errno;
  const { errno } = error as NodeJS.ErrnoException;
  return errno === undefined || errno >= 0 ? constants.errno.EIO : -errno;
}

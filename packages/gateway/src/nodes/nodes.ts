// All nodes: their reports, and an inventory of their snapshots that follows their events.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { NODE_CODE_LENGTH } from "@forkd/runtime/util/id";
import { Node, type NodeAddress, type Reply } from "./node.ts";
import { giveProjects } from "./projects.ts";
import { EVERYWHERE, type Asker, type Signer } from "./signer.ts";
import { readEvents } from "./sse.ts";
import { storedName } from "@forkd/daemon/store/project-names";
import type { ClusterProjects } from "../state/projects.ts";
import type { Status } from "@forkd/daemon/api/daemon";
import type { ImageInfo } from "@forkd/daemon/api/image";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";

const REPORT_MS = 1000;
const REPORT_WITHIN_MS = 3000;
const RETRY_MS = 1000;
/** Events arrive in bursts: one list serves a burst */
const SETTLE_MS = 50;
const ASK_WITHIN_MS = 15_000;
/** A node that is no longer listed stays known for so long: its sandboxes are not reachable, but they exist */
const KEEP_GONE_MS = 3600 * 1000;
/** The id of a sandbox, snapshot, workspace or automatic tag begins with the code of the node that made it */
const WITH_CODE = /^(?:sb|sn|br|ws)-?([a-z2-7]{16})$/;

export type Log = { info: (facts: object, message: string) => void; warn: (facts: object, message: string) => void };

export type Answers<V> = { answers: { node: Node; value: V }[]; missing: Node[] };

export class Nodes implements Disposable {
  readonly #all: Node[];
  readonly #gone = new Map<Node, NodeJS.Timeout>();
  readonly #joined = new Set<(node: Node) => void>();
  readonly #signer: Signer;
  readonly #projects: ClusterProjects;
  readonly #log: Log;
  readonly #closing = new AbortController();
  readonly #listed = new Map<Node, Promise<void>>();

  constructor(addresses: readonly NodeAddress[], parts: { signer: Signer; projects: ClusterProjects; log: Log }) {
    this.#all = addresses.map((address) => new Node(address, parts.signer));
    this.#signer = parts.signer;
    this.#projects = parts.projects;
    this.#log = parts.log;
  }

  get all(): readonly Node[] {
    return this.#all;
  }

  /** Resolves when each node has answered once or has failed to */
  async start(): Promise<void> {
    await Promise.all(this.#all.map(async (node) => this.#report(node)));
    for (const node of this.#all) this.#attend(node);
  }

  /** The nodes are these from now on. One that is missing is down, and forgotten after an hour */
  change(addresses: readonly NodeAddress[]): void {
    const listed = new Map(addresses.map((address) => [address.machine ?? address.url, address]));
    for (const node of this.#all) {
      const address = listed.get(node.machine);
      const forgetting = this.#gone.get(node);
      if (address) {
        clearTimeout(forgetting);
        this.#gone.delete(node);
        node.moveTo(address);
      } else if (!forgetting) this.#gone.set(node, setTimeout(() => this.#forget(node), KEEP_GONE_MS).unref());
      listed.delete(node.machine);
    }
    for (const address of listed.values()) {
      const node = new Node(address, this.#signer);
      this.#all.push(node);
      void this.#report(node).then(() => this.#attend(node));
      for (const joined of this.#joined) joined(node);
    }
  }

  /** Calls back for each node that joins, until the result is called */
  observe(joined: (node: Node) => void): () => void {
    this.#joined.add(joined);
    return () => this.#joined.delete(joined);
  }

  get up(): Node[] {
    return this.all.filter(({ isUp }) => isUp);
  }

  /** Those that answer and take something new; all that answer, if every one is cordoned */
  get open(): Node[] {
    const open = this.up.filter(({ status }) => status?.cordoned !== true);
    return open.length > 0 ? open : this.up;
  }

  byCode(code: string): Node | undefined {
    return this.all.find((node) => node.code === code);
  }

  /** Node of an id that contains its code; undefined: the text is a name, or of a node that is not known */
  ofId(id: string): Node | undefined {
    const [, text] = WITH_CODE.exec(id) ?? [];
    return text === undefined ? undefined : this.byCode(text.slice(0, NODE_CODE_LENGTH));
  }

  /** Asks all nodes at once. Nodes that do not answer in time are missing; throws NODE_UNREACHABLE if all are */
  async askAll(
    method: string,
    path: string,
    as: Asker,
    opts: { signal?: AbortSignal; body?: Buffer; headers?: Record<string, string> } = {},
  ): Promise<Answers<Reply>> {
    const results = await Promise.all(
      this.all.map(async (node) => {
        if (!node.isUp) return { node, value: null };
        try {
          return { node, value: await node.ask(method, path, { as, timeoutMs: ASK_WITHIN_MS, ...opts }) };
        } catch (error) {
          if (!(error instanceof ForkdError)) throw error;
          return { node, value: null };
        }
      }),
    );
    const answers = results.flatMap(({ node, value }) => (value ? [{ node, value }] : []));
    if (answers.length === 0) throw this.noneAnswers();
    return { answers, missing: results.flatMap(({ node, value }) => (value ? [] : [node])) };
  }

  /** Resolves when all nodes that answer have the projects of the cluster; the others get them when they are back */
  async giveProjects(): Promise<void> {
    await Promise.all(
      this.up.map(async (node) =>
        giveProjects(node, this.#projects).catch((error: unknown) => {
          this.#log.warn({ node: node.label, problem: messageOf(error) }, "a node did not take the projects");
        }),
      ),
    );
  }

  noneAnswers(): ForkdError {
    const why = this.all.map(({ label, problem }) => `${label}: ${problem ?? "it did not answer in time"}`).join("; ");
    return new ForkdError("NODE_UNREACHABLE", `Cannot reach any node of the cluster: ${why}.`);
  }

  /** Reads the lists of a node again; calls during a read share the next one */
  async refresh(node: Node): Promise<void> {
    const running = this.#listed.get(node);
    if (running) {
      await running;
      return;
    }
    const work = this.#list(node).finally(() => this.#listed.delete(node));
    this.#listed.set(node, work);
    await work;
  }

  close(): void {
    this.#closing.abort();
    for (const timer of this.#gone.values()) clearTimeout(timer);
    for (const node of this.#all) node.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #forget(node: Node): void {
    node.close();
    this.#gone.delete(node);
    this.#all.splice(this.#all.indexOf(node), 1);
  }

  #attend(node: Node): void {
    void this.#keepReporting(node);
    void this.#follow(node);
  }

  #until(node: Node): AbortSignal {
    return AbortSignal.any([this.#closing.signal, node.closed]);
  }

  async #keepReporting(node: Node): Promise<void> {
    const signal = this.#until(node);
    while (!signal.aborted) {
      await sleep(REPORT_MS, undefined, { signal }).catch(() => undefined);
      if (!signal.aborted) await this.#report(node);
    }
  }

  async #report(node: Node): Promise<void> {
    const wasUp = node.isUp;
    try {
      const revoked = this.#signer.pending(node);
      const { status, body } = await node.ask("GET", "/v1/status", { as: EVERYWHERE, timeoutMs: REPORT_WITHIN_MS });
      if (status !== 200) throw new Error(`it answers ${status}: ${(body as { error?: string }).error ?? ""}`);
      this.#signer.heard(node, revoked);
      const report = body as Status;
      const twin = this.all.find((other) => other !== node && other.code === report.node);
      if (twin) throw new Error(`it has the code ${report.node} of ${twin.url}: each node needs a store of its own`);
      node.code = report.node;
      node.sent = { count: 0, memoryMiB: 0 };
      if (!wasUp) {
        await this.#list(node);
        await giveProjects(node, this.#projects);
      }
      node.status = node.mustDrain ? { ...report, cordoned: true } : report;
      node.lastSeenMs = Date.now();
      node.problem = null;
      if (!wasUp) this.#log.info({ node: node.code, url: node.url }, "a node answers");
    } catch (error) {
      if (this.#closing.signal.aborted || node.closed.aborted) return;
      node.status = null;
      // without the name of the node, which each message of it has
      const problem = messageOf(error instanceof ForkdError && error.cause !== undefined ? error.cause : error);
      if (wasUp || node.problem === null) this.#log.warn({ node: node.label, url: node.url, problem }, "a node does not answer");
      node.problem = problem;
    }
  }

  async #list(node: Node): Promise<void> {
    const [snapshots, images] = await Promise.all([
      node.ask("GET", "/v1/snapshots", { as: EVERYWHERE }),
      node.ask("GET", "/v1/images", { as: EVERYWHERE }),
    ]);
    if (snapshots.status !== 200 || images.status !== 200) throw new Error(`its lists answer ${snapshots.status} and ${images.status}`);
    const infos = snapshots.body as SnapshotInfo[];
    node.snapshots = new Map(infos.map((info) => [info.id, info]));
    node.tags = new Map(infos.map((info) => [storedName(info.tag, info.project), info.id]));
    node.images = new Set((images.body as ImageInfo[]).flatMap(({ id, names }) => [id, ...names]));
  }

  /** Reads the lists again after events about snapshots and images */
  async #follow(node: Node): Promise<void> {
    const signal = this.#until(node);
    while (!signal.aborted) {
      try {
        if (node.isUp) {
          let pending: NodeJS.Timeout | undefined;
          const changed = (): void => {
            pending ??= setTimeout(() => {
              pending = undefined;
              this.refresh(node).catch((error: unknown) => this.#log.warn({ node: node.label, problem: messageOf(error) }, "no lists"));
            }, SETTLE_MS);
          };
          const path = "/v1/events";
          await readEvents(node, { path, as: EVERYWHERE, signal, onOpen: changed }, ({ event }) => {
            if (event.startsWith("snapshot.") || event.startsWith("image.")) changed();
          });
        }
      } catch (error) {
        if (!signal.aborted) this.#log.info({ node: node.label, problem: messageOf(error) }, "the events of a node ended");
      }
      await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}

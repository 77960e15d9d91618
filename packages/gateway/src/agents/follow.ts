// Follows the sandboxes of all nodes by their events, so that watches also get what other clients of forkd change.

import { setTimeout as sleep } from "node:timers/promises";
import { messageOf } from "@forkd/runtime/errors";
import { EVERY_PROJECT } from "@forkd/daemon/store/project-names";
import { EVERYWHERE, gatewayIn } from "../nodes/signer.ts";
import { readEvents } from "../nodes/sse.ts";
import type { SandboxInfo } from "@forkd/daemon/api/sandbox";
import type { Logger } from "@forkd/daemon/observe/log";
import type { Node } from "../nodes/node.ts";
import type { Nodes } from "../nodes/nodes.ts";
import type { Journal } from "./journal.ts";
import type { KubernetesObject } from "./objects.ts";
import type { SandboxIndex } from "./sandbox-index.ts";

const RETRY_MS = 1000;
const STATES = "running,paused,suspended,ended,lost";
/** Sandboxes that are read again at once, after a burst of events */
const AT_ONCE = 8;

/** Where sandboxes are that have moved */
export type Places = { codeOf: (id: string) => string; note: (id: string, node: Node) => void };

type Parts = { nodes: Nodes; places: Places; journal: Journal; index: SandboxIndex; log: Logger };

export class Follower implements Disposable {
  readonly #parts: Parts;
  readonly #closing = new AbortController();
  readonly #stop: () => void;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#stop = parts.nodes.observe((node) => void this.#follow(node));
    for (const node of parts.nodes.all) void this.#follow(node);
  }

  [Symbol.dispose](): void {
    this.#stop();
    this.#closing.abort();
  }

  async #follow(node: Node): Promise<void> {
    const signal = AbortSignal.any([this.#closing.signal, node.closed]);
    while (!signal.aborted) {
      try {
        if (node.isUp) await this.#followOnce(node, signal);
      } catch (error) {
        if (!signal.aborted) this.#parts.log.info({ node: node.label, problem: messageOf(error) }, "the events of a node ended");
      }
      await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  async #followOnce(node: Node, signal: AbortSignal): Promise<void> {
    const { index, journal, log } = this.#parts;
    const changed = new Map<string, string>();
    let working: Promise<void> | null = null;
    const work = async (): Promise<void> => {
      while (changed.size > 0) {
        const some = [...changed].slice(0, AT_ONCE);
        for (const [id] of some) changed.delete(id);
        await Promise.all(some.map(async ([id, project]) => this.#read(node, id, project)));
      }
    };
    const begin = (): void => {
      working ??= work()
        .catch((error: unknown) => log.info({ node: node.label, problem: messageOf(error) }, "changed sandboxes could not be read"))
        .finally(() => (working = null));
    };
    // the list after the stream has begun: nothing between the two is missed
    const onOpen = (): void => {
      this.#readAll(node).then(
        (missing) => {
          for (const [id, project] of missing) changed.set(id, project);
          begin();
        },
        (error: unknown) => log.info({ node: node.label, problem: messageOf(error) }, "no list of sandboxes"),
      );
    };
    await readEvents(node, { path: "/v1/events", as: EVERYWHERE, signal, onOpen }, ({ event, data }) => {
      if (!event.startsWith("sandbox.")) return;
      const { sandbox, project } = JSON.parse(data) as { sandbox: string | null; project: string | null };
      if (sandbox === null || project === null) return;
      if (event === "sandbox.deleted") index.gone(sandbox, journal.tick());
      changed.set(sandbox, project);
      begin();
    });
  }

  async #read(node: Node, id: string, project: string): Promise<void> {
    const { index, journal } = this.#parts;
    const asOf = journal.tick();
    const { status, body } = await node.ask("GET", `/v1/sandboxes/${id}`, { as: gatewayIn(project) });
    // any other answer is no fact about the sandbox: one that has moved is noted by the events of its new node
    if (status === 200) this.#note(node, body as SandboxInfo, asOf);
    else if (status === 404) index.gone(id, asOf);
  }

  #note(node: Node, info: SandboxInfo, asOf: bigint): void {
    const { index, places } = this.#parts;
    if (places.codeOf(info.id) !== node.code) places.note(info.id, node);
    index.note(info, asOf);
  }

  /** Returns ids and projects of sandboxes that were noted for the node and are not in its list */
  async #readAll(node: Node): Promise<Map<string, string>> {
    const { index, journal } = this.#parts;
    const asOf = journal.tick();
    const { status, body } = await node.ask("GET", `/v1/sandboxes?state=${STATES}`, { as: EVERYWHERE });
    if (status !== 200) throw new Error(`it answers ${status}`);
    for (const info of body as SandboxInfo[]) this.#note(node, info, asOf);
    const missing = new Map<string, string>();
    const isHere = ({ status: { nodeName } = {} }: KubernetesObject): boolean => nodeName === node.code;
    for (const id of index.noteAll(body as SandboxInfo[], isHere, asOf)) missing.set(id, EVERY_PROJECT);
    return missing;
  }
}

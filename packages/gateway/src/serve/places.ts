// Which node has a named thing. Ids say it themselves; for names all nodes are asked, and the answer is kept for a moment.

import { ForkdError } from "@forkd/runtime/errors";
import { forkdId } from "@forkd/daemon/dispatch/e2b-id";
import type { Node } from "../nodes/node.ts";
import type { Nodes } from "../nodes/nodes.ts";
import type { Asker } from "../nodes/signer.ts";

/** Short: a name can move to another sandbox */
const KEEP_MS = 3000;
const MAX_KEPT = 10_000;

type Noun = "sandboxes" | "workspaces" | "images" | "snapshots";

export class Places {
  readonly #nodes: Nodes;
  readonly #kept = new Map<string, { node: Node; untilMs: number }>();

  constructor(nodes: Nodes) {
    this.#nodes = nodes;
  }

  /** Throws NODE_UNREACHABLE if the node of the id does not answer. A name that no node has goes to any: it says so */
  async ofSandbox(idOrName: string, as: Asker): Promise<Node> {
    const id = forkdId(idOrName);
    return this.#nodes.ofId(id) ? this.reachable(this.#nodes.ofId(id)) : this.named("sandboxes", id, as);
  }

  async named(noun: Noun, name: string, as: Asker): Promise<Node> {
    return (await this.find(noun, name, as)) ?? this.any();
  }

  /** undefined: no node has it. Throws AMBIGUOUS_NAME if several have, unless copies are usual */
  async find(noun: Noun, name: string, as: Asker): Promise<Node | undefined> {
    const key = `${noun} ${as.identity?.project ?? ""} ${as.identity?.name ?? ""} ${name}`;
    const kept = this.#kept.get(key);
    if (kept && kept.untilMs > Date.now() && kept.node.isUp) return kept.node;
    const { answers } = await this.#nodes.askAll("GET", `/v1/${noun}/${encodeURIComponent(name)}`, as);
    const found = answers.filter(({ value }) => value.status === 200);
    const [first] = found;
    if (!first) return undefined;
    if (found.length > 1 && (noun === "sandboxes" || noun === "workspaces")) {
      const ids = found.map(({ value }) => (value.body as { id: string }).id);
      throw new ForkdError("AMBIGUOUS_NAME", `Cannot find one by this name: ${found.length} nodes have ${noun} with the name ${name}.`, {
        details: { ids },
      });
    }
    this.#kept.delete(key);
    this.#kept.set(key, { node: first.node, untilMs: Date.now() + KEEP_MS });
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT) break;
      this.#kept.delete(oldest);
    }
    return first.node;
  }

  /** A node that answers */
  any(): Node {
    const [first] = this.#nodes.up;
    if (!first) throw this.#nodes.noneAnswers();
    return first;
  }

  reachable(node: Node | undefined): Node {
    if (!node) throw this.#nodes.noneAnswers();
    if (!node.isUp) throw node.unreachable(node.problem ?? "it did not answer in time");
    return node;
  }
}

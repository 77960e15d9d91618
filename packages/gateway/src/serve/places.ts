// Which node has a named thing. Ids say it themselves; for names all nodes are asked, and the answer is kept for a moment.

import { ForkdError } from "@forkd/runtime/errors";
import { NODE_CODE_LENGTH } from "@forkd/runtime/util/id";
import { forkdId } from "@forkd/daemon/dispatch/e2b-id";
import { isOf } from "@forkd/daemon/store/project-names";
import { EVERYWHERE, type Asker } from "../nodes/signer.ts";
import { step } from "../nodes/steps.ts";
import type { Problem } from "@forkd/daemon/api/common";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";
import type { Node } from "../nodes/node.ts";
import type { Nodes } from "../nodes/nodes.ts";

/** Short: a name can move to another sandbox */
const KEEP_MS = 3000;
const MAX_KEPT = 10_000;
/** Named in an error */
const MAX_CHECKPOINTS = 10;

type Noun = "sandboxes" | "workspaces" | "images" | "snapshots";

export class Places {
  readonly #nodes: Nodes;
  /** by id: sandboxes that are not on the node in their id */
  readonly #moved = new Map<string, Node>();
  /** ids of which no node that answers knew anything, until then */
  readonly #unknown = new Map<string, number>();
  readonly #kept = new Map<string, { node: Node; untilMs: number }>();

  constructor(nodes: Nodes) {
    this.#nodes = nodes;
  }

  /**
   * The node of a sandbox that has moved is known, or the node in its id says it. Where that one does not answer, all others are
   * asked once; throws NODE_UNREACHABLE if none has it. A name that no node has goes to any: it says so
   */
  async ofSandbox(idOrName: string, as: Asker): Promise<Node> {
    const id = forkdId(idOrName);
    const node = this.#moved.get(id) ?? this.#nodes.ofId(id);
    if (!node) return this.named("sandboxes", id, as);
    if (node.isUp) return node;
    const elsewhere = await this.#search(id);
    if (elsewhere) return elsewhere;
    throw this.#lostWith(node, id, as);
  }

  /** Code of the node that has the sandbox, as far as this gateway knows: else that of the node that made it */
  codeOf(id: string): string {
    return this.#moved.get(id)?.code ?? id.replace(/^sb-?/, "").slice(0, NODE_CODE_LENGTH);
  }

  /** The sandbox is on another node than the one in its id */
  note(id: string, node: Node): void {
    this.#moved.delete(id);
    this.#moved.set(id, node);
    for (const oldest of this.#moved.keys()) {
      if (this.#moved.size <= MAX_KEPT) break;
      this.#moved.delete(oldest);
    }
  }

  /**
   * Node of a sandbox that another node has given up
   * @param code of the node to which it went. It makes the sandbox its own now, if the gateway that moved it died before
   */
  async follow(id: string, code: string): Promise<Node> {
    let next = code;
    for (let hops = 0; hops <= this.#nodes.all.length; hops++) {
      const node = this.#nodes.byCode(next);
      if (!node) throw new ForkdError("NODE_UNREACHABLE", `Cannot reach sandbox ${id}: it has moved to node ${next}, which is not known.`);
      this.reachable(node);
      try {
        await step(node, { step: "settle", id });
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        const { node: further } = error.details ?? {};
        if (error.code === "SANDBOX_MOVED" && typeof further === "string") {
          next = further;
          continue;
        }
        // it has ended there: the node says so
        if (error.code !== "NOT_FOUND") throw error;
      }
      this.note(id, node);
      return node;
    }
    throw new ForkdError("NODE_UNREACHABLE", `Cannot reach sandbox ${id}: it is moving from node to node.`);
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

  async #search(id: string): Promise<Node | undefined> {
    if ((this.#unknown.get(id) ?? 0) > Date.now() || this.#nodes.up.length === 0) return undefined;
    const { answers } = await this.#nodes.askAll("GET", `/v1/sandboxes/${id}`, EVERYWHERE);
    for (const { node, value } of answers) {
      if (value.status === 200) {
        this.note(id, node);
        return node;
      }
      const { code, details } = value.body as Partial<Problem>;
      const next = details?.["node"];
      if (code === "SANDBOX_MOVED" && typeof next === "string" && this.#nodes.byCode(next)?.isUp) return this.follow(id, next);
    }
    if (this.#unknown.size >= MAX_KEPT) this.#unknown.clear();
    this.#unknown.set(id, Date.now() + KEEP_MS);
    return undefined;
  }

  /** With the branches of the sandbox that other nodes have */
  #lostWith(node: Node, id: string, { identity }: Asker): ForkdError {
    const own = (info: SnapshotInfo): boolean => info.branched_from === id && identity !== null && isOf(info.project, identity.project);
    const found = this.#nodes.up.flatMap((other) =>
      [...other.snapshots.values()]
        .filter((info) => own(info) && info.status === "ready" && !info.ephemeral)
        .map(({ id: snapshot, tag, created_at_unix }) => ({ tag, id: snapshot, node: other.label, created_at_unix })),
    );
    const checkpoints = found.toSorted((a, b) => b.created_at_unix - a.created_at_unix).slice(0, MAX_CHECKPOINTS);
    const [latest] = checkpoints;
    const { message } = node.unreachable(node.problem ?? "it did not answer in time");
    const hint =
      latest && `Its last checkpoint elsewhere is ${latest.tag}: 'forkd fork ${latest.tag}' continues from there. Or wait for the node.`;
    return new ForkdError("NODE_UNREACHABLE", message, {
      ...(hint === undefined ? {} : { hint }),
      details: { node: node.label, sandbox: id, checkpoints },
    });
  }

  reachable(node: Node | undefined): Node {
    if (!node) throw this.#nodes.noneAnswers();
    if (!node.isUp) throw node.unreachable(node.problem ?? "it did not answer in time");
    return node;
  }
}

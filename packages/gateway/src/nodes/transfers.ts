// Movement of snapshots from node to node as packs: only what the receiver lacks, each snapshot once per node at a time.

import { pipeline } from "node:stream/promises";
import { ForkdError } from "@forkd/runtime/errors";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import { gatewayIn } from "./signer.ts";
import { DEFAULT_PROJECT } from "@forkd/daemon/store/project-names";
import type { IncomingMessage } from "node:http";
import type { Problem } from "@forkd/daemon/api/common";
import type { Node } from "./node.ts";
import type { Log, Nodes } from "./nodes.ts";

/** Transfers through one gateway at a time; others wait */
const AT_ONCE = 4;
const MAX_WAITING = 64;
/** Ids in a URL */
const MAX_WITHOUT = 200;
/** Level of compression: between nodes the network is faster than a higher level */
const LEVEL = 1;

/** `has`: ids of its chain that the receiver has, also without a tag */
type Named = { project: string; tag: string; has: readonly string[] };

export class Transfers {
  readonly #nodes: Nodes;
  readonly #log: Log;
  readonly #running = new Map<string, Promise<void>>();
  readonly #places = new Semaphore(AT_ONCE);
  /** bytes of all packs that went through this gateway */
  bytes = 0;
  count = 0;

  constructor(nodes: Nodes, log: Log) {
    this.#nodes = nodes;
    this.#log = log;
  }

  /**
   * Resolves when the receiver has the snapshot. Throws BUSY if too many wait
   * @param named of a snapshot that is so new that the lists of the sender lack it
   */
  async move(id: string, from: Node, to: Node, named?: Named): Promise<void> {
    const key = `${id} ${to.label}`;
    const running = this.#running.get(key);
    if (running) return running;
    if (this.#running.size >= MAX_WAITING)
      throw new ForkdError("BUSY", `Cannot move snapshot ${id} to node ${to.label}: ${MAX_WAITING} transfers wait already.`);
    const work = this.#places.run(async () => this.#send(id, from, to, named));
    this.#running.set(key, work);
    to.fetching.add(id);
    try {
      await work;
    } finally {
      this.#running.delete(key);
      to.fetching.delete(id);
    }
  }

  async #send(id: string, from: Node, to: Node, known?: Named): Promise<void> {
    const startMs = performance.now();
    const info = from.snapshots.get(id);
    const { project, tag } = known ?? { project: info?.project ?? DEFAULT_PROJECT, tag: info?.tag };
    const as = gatewayIn(project);
    await this.#nodes.refresh(to);
    if (to.snapshots.has(id)) return;
    // ids that the sender does not know would be refused
    const common = known?.has ?? [...to.snapshots.keys()].filter((other) => from.snapshots.has(other)).slice(-MAX_WITHOUT);
    const query = new URLSearchParams({ level: String(LEVEL), ...(common.length > 0 ? { without: common.join(",") } : {}) });
    const reading = from.open({ method: "GET", path: `/v1/snapshots/${id}/pack?${query.toString()}`, headers: [] }, as);
    reading.end();
    const pack = await responseOf(from, reading);
    const bytes = Number(pack.headers["content-length"] ?? 0);
    const named = new URLSearchParams({ keep_network: "true", ...(tag === undefined ? {} : { tag }) });
    const headers = ["Content-Type", "application/vnd.forkd.pack", "Transfer-Encoding", "chunked"];
    const writing = to.open({ method: "POST", path: `/v1/packs?${named.toString()}`, headers }, as);
    const stored = responseOf(to, writing);
    // a refusal ends the upload early; its reason is in `stored`
    await Promise.allSettled([pipeline(pack, writing), stored]);
    (await stored).resume();
    if (info?.visibility === "public")
      await to.ask("PATCH", `/v1/snapshots/${encodeURIComponent(info.tag)}`, { as, body: Buffer.from('{"visibility":"public"}') });
    this.bytes += bytes;
    this.count++;
    await this.#nodes.refresh(to);
    const ms = Math.round(performance.now() - startMs);
    this.#log.info({ snapshot: id, from: from.label, to: to.label, bytes, ms }, "a snapshot was moved");
  }
}

function responseOf(node: Node, outgoing: ReturnType<Node["open"]>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    outgoing.once("error", (error) => reject(node.unreachable(error)));
    outgoing.once("response", (response) => {
      if ((response.statusCode ?? 500) < 300) {
        resolve(response);
        return;
      }
      const pieces: Buffer[] = [];
      response.on("data", (piece: Buffer) => pieces.push(piece));
      response.once("error", reject);
      response.once("end", () => {
        const problem = JSON.parse(Buffer.concat(pieces).toString()) as Problem;
        const code = problem.code === "NO_SPACE" || problem.code === "LIMIT_REACHED" ? problem.code : "NODE_UNREACHABLE";
        reject(new ForkdError(code, `Cannot move a snapshot: node ${node.label} refuses: ${problem.error}`));
      });
    });
  });
}
